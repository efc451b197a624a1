"""Keys of an installation, and what is sealed under them in its database: checks at start, rotation."""
