"""`/v1/settings/application/media/providers`: credentials for media that are given by link."""
