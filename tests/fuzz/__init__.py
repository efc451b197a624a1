"""Our own OpenAPI document tried by schemathesis against real processes."""
