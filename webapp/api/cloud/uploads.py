"""Resumable uploads: `POST /{app-id}/uploads`, `POST` and `GET /upload:{session}`."""

from __future__ import annotations

from fastapi import Response

from tidings.storage.business.cloud_uploads import CloudUpload
from tidings.wire.addresses import is_digits
from webapp.api.cloud import errors, handles
from webapp.api.cloud.calls import CloudCall, text_of
from webapp.api.cloud.paths import UPLOAD
from webapp.api.cloud.upload_sessions import UploadSessions
from webapp.api.media.service import read_type
from webapp.api.media.transfer import received
from webapp.http import headers

TYPES = ("application/pdf", "image/jpeg", "image/jpg", "image/png", "video/mp4")
# Types under the names that the store knows them by.
_NAMES = {"image/jpg": "image/jpeg"}
MAX_NAME = 255  # characters
_MAX_DIGITS = 15


async def start(call: CloudCall) -> Response:
    """Start a session for a file of a type and a size."""
    parameters = await call.parameters()
    length, kind = text_of(parameters, "file_length"), text_of(parameters, "file_type").lower()
    for name, value in (("file_length", length), ("file_type", kind)):
        if not value:
            raise errors.missing(name)
    if kind not in TYPES:
        raise errors.not_one_of("file_type", TYPES, kind)
    if len(text_of(parameters, "file_name")) > MAX_NAME:
        raise errors.invalid(f"file_name: should have at most {MAX_NAME} characters")
    media_type = read_type(_NAMES.get(kind, kind))
    size = int(length) if is_digits(length, 1, _MAX_DIGITS) else 0
    if not 0 < size <= media_type.limit:
        raise errors.invalid(f"file_length: should be a number of bytes from 1 to {media_type.limit} for {kind}")
    return call.respond({"id": UPLOAD + await call.find(UploadSessions).start(call.caller, media_type, size)})


async def add(call: CloudCall) -> Response:
    """Store the bytes of a file from an offset on. Responds with the handle of the file once it is complete."""
    upload = await _find(call)
    offset = (headers.find(call.request.scope, b"file_offset") or b"").decode("latin-1").strip()
    if not offset:
        raise errors.missing("file_offset")
    if not is_digits(offset, 1, _MAX_DIGITS):
        raise errors.invalid("file_offset: should be a number of bytes")
    media_id = await call.find(UploadSessions).add(
        call.caller, upload, int(offset), received(call.request), request_id=call.request_id
    )
    if media_id is None:
        return await show(call)
    return call.respond({"h": handles.encode(media_id, upload.mime_type)})


async def show(call: CloudCall) -> Response:
    """Return the offset at which the next byte is expected."""
    upload = await _find(call)
    return call.respond({"id": call.target.node, "file_offset": upload.received})


async def _find(call: CloudCall) -> CloudUpload:
    found = await call.find(UploadSessions).find(call.caller, call.target.node.removeprefix(UPLOAD))
    if found is None:
        raise call.unsupported()
    return found
