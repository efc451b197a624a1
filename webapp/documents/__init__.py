"""`/openapi.json` and `/docs`: what the API is, for programs and for people."""
