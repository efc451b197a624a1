"""Groups: who is in them, messages that are encrypted once for all, and what arrives from them."""
