"""Tests of coreapp.peers."""
