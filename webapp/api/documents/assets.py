"""The documentation page and its scripts and styles, served from a package and never loaded from elsewhere."""

from __future__ import annotations

import dataclasses
import importlib.resources
from collections.abc import Mapping

# Allows only what this Webapp serves. Swagger UI writes styles into its elements, and has icons as `data:`.
POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self' 'unsafe-inline'",
        "img-src 'self' data:",
        "connect-src 'self'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
    )
)
PAGE = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Tidings</title>
<link rel="stylesheet" href="/docs/swagger-ui.css">
<link rel="icon" href="/docs/favicon.png">
</head>
<body>
<div id="swagger-ui"></div>
<script src="/docs/swagger-ui-bundle.js"></script>
<script src="/docs/start.js"></script>
</body>
</html>
"""
_START = """SwaggerUIBundle({
  url: "/openapi.json",
  dom_id: "#swagger-ui",
  deepLinking: true,
  presets: [SwaggerUIBundle.presets.apis, SwaggerUIBundle.SwaggerUIStandalonePreset],
});
"""


@dataclasses.dataclass(frozen=True, slots=True)
class Asset:
    """File of the documentation page."""

    kind: str  # content type
    content: bytes


class Assets:
    """Files of the documentation page by name, read at the first request for one of them."""

    def __init__(self) -> None:
        self._found: Mapping[str, Asset] | None = None

    def find(self, name: str) -> Asset | None:
        """Return a file of the page; `None` when no file has this name."""
        if self._found is None:
            self._found = {"start.js": Asset("text/javascript", _START.encode())} | {
                name: Asset(kind, _packaged(name)) for name, kind in _PACKAGED.items()
            }
        return self._found.get(name)


_PACKAGED = {
    "swagger-ui-bundle.js": "text/javascript",
    "swagger-ui.css": "text/css",
    "favicon.png": "image/png",
}


def _packaged(name: str) -> bytes:
    # The package contains Swagger UI as released.
    return (importlib.resources.files("fastapi_offline") / "static" / name).read_bytes()
