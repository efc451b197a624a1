"""Callbacks to the business: bodies, queue, delivery, signatures and retries."""
