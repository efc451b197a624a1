"""Content of an interactive message, by its type."""
