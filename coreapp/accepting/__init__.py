"""From a request to a committed job: admission, idempotency keys, the job queue."""
