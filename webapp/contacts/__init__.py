"""`/v1/contacts`: which numbers can be written to."""
