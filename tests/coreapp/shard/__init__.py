"""Tests of coreapp.shard."""
