"""Webhooks in the format of the Cloud API: bodies, translated from our events, and signatures."""
