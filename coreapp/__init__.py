"""The worker: contacts, sessions, the job queue, callbacks."""
