"""`/v1/media`: files that the business sends, and files that recipients sent."""
