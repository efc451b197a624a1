"""HTTP API of devices: registration, pre-keys and blocks."""
