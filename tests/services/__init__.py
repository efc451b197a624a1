"""Private servers for tests and measurements: started by us, for us, and gone when we are."""
