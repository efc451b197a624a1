"""The library below all four processes of Tidings."""

__version__ = "0.1.0"
