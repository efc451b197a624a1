"""`/v1/settings/backup` and `/v1/settings/restore`: the settings and keys of a number, encrypted with a password."""
