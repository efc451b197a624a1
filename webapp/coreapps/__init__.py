"""Connections of a Webapp to its Coreapps, and the map of shards to them."""
