"""Unchanged client libraries of the Cloud API, from their registries, against a real installation."""
