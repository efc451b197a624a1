"""Static files of pages: read once, and named by their content in URLs."""

from __future__ import annotations

import dataclasses
import gzip
import hashlib
import importlib.resources
from collections.abc import Iterable, Mapping

from starlette.requests import Request
from starlette.responses import Response

from tidings.pages import headers

_TYPES = {".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml", ".png": "image/png"}


@dataclasses.dataclass(frozen=True, slots=True)
class PageAsset:
    """Static file."""

    kind: str  # content type
    content: bytes
    compressed: bytes  # gzip-compressed content
    version: str  # start of its hash


class PageAssets:
    """Static files of some packages by name."""

    def __init__(self, prefix: str, packages: Iterable[str]) -> None:
        """prefix:   path below which they are served, such as `/handset/static`
        packages: packages with a folder `static`; of two files with one name the later one counts
        """
        self._prefix = prefix
        self._found = {name: asset for package in packages for name, asset in _read(package).items()}

    def url(self, name: str) -> str:
        """Return the URL of a file, which changes with its content."""
        return f"{self._prefix}/{name}?v={self._found[name].version}"

    def respond(self, request: Request, name: str) -> Response | None:
        """Return the response with a file; `None` when no file has this name."""
        asset = self._found.get(name)
        if asset is None:
            return None
        sent = dict(headers.of_asset(lasting=request.query_params.get("v") == asset.version))
        sent["Vary"] = "Accept-Encoding"
        content = asset.content
        if "gzip" in request.headers.get("accept-encoding", ""):
            content = asset.compressed
            sent["Content-Encoding"] = "gzip"
        return Response(content, media_type=asset.kind, headers=sent)


def _read(package: str) -> Mapping[str, PageAsset]:
    found = {}
    for path in (importlib.resources.files(package) / "static").iterdir():
        kind = _TYPES.get("." + path.name.rpartition(".")[2])
        if kind is not None:
            content = path.read_bytes()
            version = hashlib.sha256(content).hexdigest()[:12]
            found[path.name] = PageAsset(kind, content, gzip.compress(content, mtime=0), version)
    return found
