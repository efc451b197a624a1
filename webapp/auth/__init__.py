"""Authentication: passwords, tokens, idempotency keys."""
