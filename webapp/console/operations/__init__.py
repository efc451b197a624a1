"""Requests to Coreapps that need the operator key."""
