"""Checks of an installation from outside, one per part; each finding includes a remedy."""
