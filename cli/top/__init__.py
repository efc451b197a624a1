"""Live view of an installation, from two successive scrapes of its processes' metrics."""
