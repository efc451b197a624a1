"""Robots: handsets that act according to their number."""
