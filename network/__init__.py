"""Message network: a directory of devices and their public keys, a mailbox per device, and live connections.

The network sees numbers, sizes and times, and never a plaintext or a private key.
"""
