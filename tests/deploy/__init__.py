"""The compose files, brought up with podman on a network of their own: `make test-deploy`."""
