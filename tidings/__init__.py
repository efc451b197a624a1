"""Library that all four processes of Tidings use."""

__version__ = "1.0.0rc1"
