"""Tests of `coreapp.journal`."""
