"""The content of an interactive message, by its type."""
