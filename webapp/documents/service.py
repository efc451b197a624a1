"""The OpenAPI document, as it is sent."""

from __future__ import annotations

import msgspec
from fastapi import FastAPI


class Document:
    """Made when somebody first asks for it, and kept: some hundred KB."""

    def __init__(self) -> None:
        self._rendered = b""

    def render(self, app: FastAPI) -> bytes:
        """JSON."""
        if not self._rendered:
            self._rendered = msgspec.json.encode(app.openapi())
        return self._rendered
