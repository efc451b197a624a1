"""Calls of the real Cloud API: connections, and the pace of one number."""
