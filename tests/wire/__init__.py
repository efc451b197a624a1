"""Tests of tidings.wire."""
