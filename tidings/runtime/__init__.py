"""What every process needs and no process owns: settings, services, batching, metrics."""
