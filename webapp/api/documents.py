"""`/openapi.json` and `/docs`: the description of the API for programs and for people."""

from __future__ import annotations

import dataclasses
import importlib.resources
from collections.abc import Mapping
from typing import Annotated

import msgspec
from fastapi import APIRouter, Depends, FastAPI, Request, Response

from webapp.auth import authenticator
from webapp.http.dependencies import part
from webapp.http.errors import UnknownPath

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


class OpenApiDocument:
    """OpenAPI document, rendered at the first request and then kept. It has some hundred KB."""

    def __init__(self) -> None:
        self._rendered = b""

    def render(self, app: FastAPI) -> bytes:
        """Return the document as JSON."""
        if not self._rendered:
            self._rendered = msgspec.json.encode(app.openapi())
        return self._rendered


router = APIRouter(include_in_schema=False, dependencies=[Depends(authenticator.caller_unless_local)])
Service = Annotated[OpenApiDocument, part(OpenApiDocument)]


@router.get("/openapi.json")
async def get_openapi(document: Service, request: Request) -> Response:
    return Response(document.render(request.app), media_type="application/json")


@router.get("/docs")
async def get_docs() -> Response:
    return Response(PAGE, media_type="text/html", headers={"Content-Security-Policy": POLICY})


@router.get("/docs/{name}")
async def get_asset(found: Annotated[Assets, part(Assets)], name: str) -> Response:
    asset = found.find(name)
    if asset is None:
        raise UnknownPath(f"/docs/{name}")
    return Response(asset.content, media_type=asset.kind, headers={"X-Content-Type-Options": "nosniff"})
