"""Tests of the console, over HTTP without a browser."""
