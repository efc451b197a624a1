"""`/v1/users`: login, logout and users."""
