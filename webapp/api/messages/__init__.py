"""`/v1/messages`: send messages, and mark received ones as read."""
