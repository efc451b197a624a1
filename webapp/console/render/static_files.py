"""Static files of the console: the style sheet, the scripts and the icon, each under the hash of its content."""

from __future__ import annotations

import dataclasses
import hashlib
import importlib.resources
from collections.abc import Mapping

from fastapi import Request, Response

from webapp.http import headers
from webapp.http.errors import UnknownPath

STATIC = "/console/static/"
_KINDS = {"css": "text/css; charset=utf-8", "js": "text/javascript; charset=utf-8", "svg": "image/svg+xml"}
# Names by package with a folder `static`.
NAMES = {"webapp.console": ("console.css", "console.js", "icon.svg"), "tidings.pages": ("htmx.min.js", "hx-csp.min.js")}


@dataclasses.dataclass(frozen=True, slots=True)
class StaticFile:
    """One file in memory."""

    kind: str  # content type
    content: bytes
    tag: str  # first digits of the hash, in the URL of the file


class StaticAssets:
    """The files of the console, read once."""

    def __init__(self) -> None:
        self._files: Mapping[str, StaticFile] = {
            name: _made(name, (importlib.resources.files(package) / "static" / name).read_bytes())
            for package, names in NAMES.items()
            for name in names
        }

    def url(self, name: str) -> str:
        """Return the path of a file, which changes with its content."""
        return f"{STATIC}{name}?v={self._files[name].tag}"

    def respond(self, request: Request, name: str) -> Response:
        """Return a file, or 304 when the browser has it. Raises `UnknownPath`."""
        found = self._files.get(name)
        if found is None:
            raise UnknownPath(STATIC + name)
        tag = f'"{found.tag}"'
        if (headers.find(request.scope, b"if-none-match") or b"").decode("latin-1") == tag:
            return Response(status_code=304, headers={"ETag": tag})
        return Response(found.content, media_type=found.kind, headers={"ETag": tag})


def _made(name: str, content: bytes) -> StaticFile:
    return StaticFile(_KINDS[name.rpartition(".")[2]], content, hashlib.sha256(content).hexdigest()[:16])
