"""Our OpenAPI document, tested by schemathesis against real processes."""
