"""Tests of coreapp.webhook."""
