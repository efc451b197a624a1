"""Tests of tidings.cli."""
