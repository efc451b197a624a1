"""HTTP server of all processes: protocol, admission of connections, limits for unauthenticated clients."""
