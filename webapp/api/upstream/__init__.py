"""Callback that the real Cloud API posts webhooks to, for numbers that send through it."""
