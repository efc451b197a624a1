"""From a request to a committed job: admission, idempotency keys and the job queue."""
