"""Benchmarks of Tidings. Their harness is shared with the crash test."""
