"""What arrives from the servers, and what follows from it."""
