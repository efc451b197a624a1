"""Tests of coreapp.account."""
