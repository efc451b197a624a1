"""Encrypted files that devices leave for each other. The network has no key to any of them."""
