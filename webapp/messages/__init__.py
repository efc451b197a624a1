"""`/v1/messages`: sending."""
