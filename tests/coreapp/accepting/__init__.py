"""Tests of coreapp.accepting."""
