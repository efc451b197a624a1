"""The OpenAPI document of the Cloud API, generated from its endpoints."""
