"""Picture as a request body: either the bytes alone, or a form with the field `File`."""

from __future__ import annotations

import dataclasses
from typing import Any

from fastapi import Depends, Request

from tidings.wire.codes import PARAMETER_INVALID
from webapp.http import bodies, headers, multipart
from webapp.http.errors import InvalidRequest

FIELD = "File"
_FRAME = 4096  # maximum bytes around a file in a form
_TYPES = ((b"\xff\xd8\xff", "image/jpeg"), (b"\x89PNG\r\n\x1a\n", "image/png"))

_SCHEMA = {"schema": {"type": "string", "format": "binary"}}
CONTENT: dict[str, Any] = {kind: _SCHEMA for _, kind in _TYPES}
"""Media types of a picture, for the OpenAPI document."""
UPLOAD: dict[str, Any] = {
    "required": True,
    "content": {
        **CONTENT,
        "multipart/form-data": {
            "schema": {
                "type": "object",
                "required": [FIELD],
                "properties": {FIELD: {"type": "string", "format": "binary"}},
            }
        },
    },
}
"""Body with a picture, for the OpenAPI document."""


@dataclasses.dataclass(frozen=True, slots=True)
class UploadedPicture:
    """Picture in a request."""

    type: str  # `image/jpeg` or `image/png`, according to the first bytes
    content: bytes


def picture_body(limit: int) -> Any:
    """Return a dependency that reads a picture of at most `limit` bytes. Place it after the caller."""

    async def read(request: Request) -> UploadedPicture:
        content = await bodies.receive(request, limit + _FRAME)
        kind = headers.find(request.scope, b"content-type") or b""
        if multipart.is_multipart(kind):
            content = multipart.take_file(kind, content, FIELD)
        return check(content, limit)

    return Depends(read)


def check(content: bytes, limit: int) -> UploadedPicture:
    """Check the size and the type of a picture.

    Raises `InvalidRequest` unless it has at most `limit` bytes and is one.
    """
    if len(content) > limit:
        raise InvalidRequest.because(PARAMETER_INVALID, f"{FIELD}: is over the limit of {limit} bytes")
    for start, name in _TYPES:
        if content.startswith(start):
            return UploadedPicture(name, content)
    raise InvalidRequest.because(PARAMETER_INVALID, f"{FIELD}: should be a JPEG or PNG image")
