"""Pages in a browser: headers, templates, static files, and event streams. Processes that serve pages share them."""
