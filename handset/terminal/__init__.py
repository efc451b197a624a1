"""A handset in a terminal: what a person sees and types."""
