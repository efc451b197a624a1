"""Tests of Tidings. `make test` runs them."""
