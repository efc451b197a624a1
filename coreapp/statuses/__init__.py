"""Status of each message, and the rows that report it."""
