"""The whole system as real processes."""
