"""Outboxes of devices: committed envelopes are sent until the network has accepted them."""
