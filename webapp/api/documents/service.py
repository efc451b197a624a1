"""The OpenAPI document as it is sent."""

from __future__ import annotations

import msgspec
from fastapi import FastAPI


class OpenApiDocument:
    """OpenAPI document, rendered at the first request and then kept. It has some hundred KB."""

    def __init__(self) -> None:
        self._rendered = b""

    def render(self, app: FastAPI) -> bytes:
        """Return the document as JSON."""
        if not self._rendered:
            self._rendered = msgspec.json.encode(app.openapi())
        return self._rendered
