"""Robots: recipients that do what their number says."""
