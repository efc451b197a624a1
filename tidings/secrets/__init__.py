"""Secrets of installations, processes and people: sources, files, hashes, encryption under a password."""
