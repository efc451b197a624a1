"""Picture as a request body: either the bytes alone, or a form with the field `File`."""

from __future__ import annotations

import contextlib
import dataclasses
from typing import Any

from fastapi import Depends, Request
from python_multipart.exceptions import FormParserError
from python_multipart.multipart import Field, File, FormParser, parse_options_header

from tidings.wire.codes import INVALID_REQUEST, PARAMETER_INVALID, PARAMETER_MISSING
from webapp.http import bodies, headers
from webapp.http.errors import InvalidRequest

_FORM = "multipart/form-data"
_MAX_BOUNDARY = 70  # RFC 2046, section 5.1.1


def is_multipart(content_type: bytes) -> bool:
    """Return whether the header announces a `multipart/form-data` body."""
    return parse_options_header(content_type.strip())[0] == _FORM.encode()


def take_file(content_type: bytes, body: bytes, field: str) -> bytes:
    """Return the content of a field, whose name is compared without regard to case. Raises `InvalidRequest`."""
    boundary = parse_options_header(content_type)[1].get(b"boundary")
    if not boundary or len(boundary) > _MAX_BOUNDARY:
        raise InvalidRequest.because(INVALID_REQUEST, "the Content-Type names no boundary of at most 70 characters")
    # Data before the first boundary is not part of the form.
    _, delimiter, parts = (b"\r\n" + body).partition(b"\r\n--" + boundary)
    if parts.startswith(b"--") or b"\r\n--" + boundary + b"--" not in parts:
        raise InvalidRequest.because(INVALID_REQUEST, "the body does not end with its boundary")
    found: list[bytes] = []

    def keep(name: bytes | None, content: bytes) -> None:
        if name is not None and name.lower() == field.lower().encode():
            found.append(content)

    def keep_file(part: File) -> None:
        part.file_object.seek(0)
        keep(part.field_name, part.file_object.read())

    def keep_field(part: Field) -> None:
        keep(part.field_name, part.value or b"")

    # The whole body is in memory already, so files stay in memory as well.
    form = FormParser(_FORM, keep_field, keep_file, boundary=boundary, config={"MAX_MEMORY_FILE_SIZE": len(body)})
    # Fields before a syntax error are used.
    with contextlib.suppress(FormParserError):
        form.write(delimiter.removeprefix(b"\r\n") + parts)
        form.finalize()
    form.close()
    if not found:
        raise InvalidRequest.because(PARAMETER_MISSING, f"{field}: is missing")
    return found[0]


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
        if is_multipart(kind):
            content = take_file(kind, content, FIELD)
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
