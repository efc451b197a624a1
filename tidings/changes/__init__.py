"""Detection of changes made by other processes."""
