"""Who may use the console: sessions, forms, and the one-time link."""
