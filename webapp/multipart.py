"""One file out of a `multipart/form-data` body, as browsers and the original's clients send it."""

from __future__ import annotations

import re

from tidings.wire.codes import INVALID_REQUEST, PARAMETER_MISSING
from webapp.errors import InvalidRequest

_TYPE = re.compile(rb"multipart/form-data\s*(;|$)", re.IGNORECASE)
_BOUNDARY = re.compile(rb';\s*boundary=(?:"([^"\r\n]{1,70})"|([^\s;"]{1,70}))', re.IGNORECASE)
_NAME = re.compile(rb'[;\s]name=(?:"([^"\r\n]*)"|([^\s;"]+))', re.IGNORECASE)


def is_multipart(content_type: bytes) -> bool:
    """Does the header announce such a body?"""
    return _TYPE.match(content_type.strip()) is not None


def take_file(content_type: bytes, body: bytes, field: str) -> bytes:
    """The content of the field, whose name is compared without regard to case. Raises `InvalidRequest`."""
    match = _BOUNDARY.search(content_type)
    if match is None:
        raise InvalidRequest.because(INVALID_REQUEST, "the Content-Type names no boundary")
    delimiter = b"\r\n--" + (match[1] or match[2])
    parts = (b"\r\n" + body).split(delimiter)
    if len(parts) < 3 or not parts[-1].startswith(b"--"):
        raise InvalidRequest.because(INVALID_REQUEST, "the body does not end with its boundary")
    for part in parts[1:-1]:
        # What may follow a delimiter in its line is padding.
        head, blank, content = part.partition(b"\r\n\r\n")
        name = _NAME.search(head) if blank else None
        if name is not None and (name[1] or name[2] or b"").lower() == field.lower().encode():
            return content
    raise InvalidRequest.because(PARAMETER_MISSING, f"{field}: is missing")
