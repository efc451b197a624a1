"""HTML from templates, and values as text."""
