"""What tests and benchmarks share: private servers, a whole installation as real processes, load on it, its books."""
