"""`/metrics`: what this Webapp counts, for Prometheus."""
