"""Devices: their keys, their registration, and what secret of them is stored."""
