"""Computations of benchmarks, without running them."""
