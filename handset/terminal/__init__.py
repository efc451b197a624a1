"""Handset in a terminal."""
