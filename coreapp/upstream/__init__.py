"""Sending and receiving through the real Cloud API, for numbers that do not use the network (docs/decisions/0073)."""
