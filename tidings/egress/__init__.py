"""Requests to addresses that others name: which may be called, and connections to exactly those."""
