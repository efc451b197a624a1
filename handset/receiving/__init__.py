"""Processing of deliveries, from their receipt to messages that are shown once, in one transaction per batch."""
