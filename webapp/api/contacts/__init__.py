"""`/v1/contacts`: check which numbers can receive messages."""
