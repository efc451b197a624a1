"""Groups: who is in them, and the copies of what is sent to them."""
