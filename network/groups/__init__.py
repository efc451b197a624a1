"""Groups: their participants, and the copies of messages sent to them."""
