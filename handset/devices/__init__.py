"""Devices: keys, registration, and secrets in the store."""
