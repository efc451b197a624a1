"""The message network: a directory of devices and their public keys, a mailbox for each, and live connections.

It sees numbers, sizes and times, and never a plaintext or a private key.
"""
