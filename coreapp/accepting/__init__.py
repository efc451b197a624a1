"""Acceptance of messages, from a request to a committed job: admission, idempotency keys and the job queue."""
