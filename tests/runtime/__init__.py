"""Tests of tidings.runtime."""
