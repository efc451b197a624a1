"""`/v1/health`: state of the connection to the network, and readiness."""
