"""Two hours at half of the capacity. `make soak` runs it, for a nightly run."""
