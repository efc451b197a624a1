"""Requests to hosts that others name: check their addresses, and connect to exactly the checked ones."""
