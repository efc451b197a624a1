"""Requests to the owners of shards."""
