"""Tests of coreapp.media."""
