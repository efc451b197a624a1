"""Tests of webhooks in the format of the Cloud API."""
