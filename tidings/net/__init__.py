"""Sockets: TLS and its handshakes, accepting connections at a limited rate, clients that have not logged in."""
