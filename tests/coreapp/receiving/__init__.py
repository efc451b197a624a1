"""Tests of coreapp.receiving."""
