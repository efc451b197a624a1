"""Library that all four processes of Tidings use."""

__version__ = "0.1.0"
