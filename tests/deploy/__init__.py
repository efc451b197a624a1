"""Compose files, run with podman in a separate network: `make test-deploy`."""
