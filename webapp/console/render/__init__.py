"""HTML from templates, static files, and values as text."""
