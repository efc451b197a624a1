"""Files in messages: accepted types and sizes, errors, and reading."""
