"""A picture as the body of a request: its bytes alone, or a form with the field `File`."""

from __future__ import annotations

import dataclasses
from typing import Any

from fastapi import Depends, Request

from tidings.wire.codes import PARAMETER_INVALID
from webapp import bodies, headers, multipart
from webapp.errors import InvalidRequest

FIELD = "File"
_FRAME = 4096  # bytes around a file in a form, at most
_TYPES = ((b"\xff\xd8\xff", "image/jpeg"), (b"\x89PNG\r\n\x1a\n", "image/png"))

_SCHEMA = {"schema": {"type": "string", "format": "binary"}}
CONTENT: dict[str, Any] = {kind: _SCHEMA for _, kind in _TYPES}
"""The media types of a picture, as OpenAPI describes them."""
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
"""The body that `receive` takes, as OpenAPI describes it."""


@dataclasses.dataclass(frozen=True, slots=True)
class UploadedPicture:
    """type: `image/jpeg` or `image/png`, by what the content begins with."""

    type: str
    content: bytes


def picture_body(limit: int) -> Any:
    """For the signature of a route, behind the caller: a picture of at most `limit` bytes."""

    async def read(request: Request) -> UploadedPicture:
        content = await bodies.receive(request, limit + _FRAME)
        kind = headers.find(request.scope, b"content-type") or b""
        if multipart.is_multipart(kind):
            content = multipart.take_file(kind, content, FIELD)
        return check(content, limit)

    return Depends(read)


def check(content: bytes, limit: int) -> UploadedPicture:
    """Raises `InvalidRequest` for what is no picture of at most `limit` bytes."""
    if len(content) > limit:
        raise InvalidRequest.because(PARAMETER_INVALID, f"{FIELD}: is over the limit of {limit} bytes")
    for start, name in _TYPES:
        if content.startswith(start):
            return UploadedPicture(name, content)
    raise InvalidRequest.because(PARAMETER_INVALID, f"{FIELD}: should be a JPEG or PNG image")
