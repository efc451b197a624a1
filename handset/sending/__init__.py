"""The outbox of each device: what is committed goes out until the network has accepted it."""
