"""`/openapi.json` and `/docs`: the description of the API for programs and for people."""
