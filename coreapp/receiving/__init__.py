"""Deliveries from the network and their effects."""
