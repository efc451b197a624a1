"""Comparison of Tidings with other software on the same work, in the same run."""
