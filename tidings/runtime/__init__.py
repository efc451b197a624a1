"""Parts shared by all processes: settings, services, batching, limits, TLS, metrics."""
