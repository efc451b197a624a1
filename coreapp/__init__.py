"""Worker process: contacts, sessions, the job queue and callbacks."""
