"""Groups: participants, messages that are encrypted once for all of them, and deliveries from groups."""
