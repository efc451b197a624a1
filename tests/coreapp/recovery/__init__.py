"""Tests of coreapp.recovery."""
