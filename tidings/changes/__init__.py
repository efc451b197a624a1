"""Noticing what other processes changed."""
