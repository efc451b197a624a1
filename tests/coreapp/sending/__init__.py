"""Tests of coreapp.sending."""
