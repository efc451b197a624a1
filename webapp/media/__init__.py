"""`/v1/media`: files that are sent, and those that recipients sent."""
