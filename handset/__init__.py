"""Handsets of recipients: a library, robots for tests, and a handset in a terminal."""
