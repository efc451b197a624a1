"""What may be wrong with an installation, looked at from outside: a check for each part, and what to do about it."""
