"""`/v1/users`: logging in and out."""
