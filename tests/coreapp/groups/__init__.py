"""Tests of coreapp.groups."""
