"""Devices: their keys, their registration, and their secrets in the store."""
