"""The API document that /openapi.json and /docs show."""
