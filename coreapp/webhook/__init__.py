"""Telling the business: bodies, the queue of callbacks, their delivery, signatures and retries."""
