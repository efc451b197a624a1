"""`/metrics`: metrics of this Webapp, for Prometheus."""
