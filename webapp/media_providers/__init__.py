"""`/v1/settings/application/media/providers`: credentials for media that come by link."""
