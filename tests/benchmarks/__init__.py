"""What benchmarks conclude, without running them."""
