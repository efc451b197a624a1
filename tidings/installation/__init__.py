"""Settings and files that several processes of an installation share."""
