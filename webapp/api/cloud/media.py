"""Files: `POST /{phone-number-id}/media`, `GET` and `DELETE /{media-id}`, and the bytes behind a file's URL."""

from __future__ import annotations

import mimetypes
import re

from fastapi import Response

from tidings.keys.media_links import MediaLinks
from tidings.media import kinds
from tidings.storage.business.media import MediaRow
from tidings.wire import codes
from tidings.wire.cloud import media_ids
from webapp.api.cloud import errors, fields, responses
from webapp.api.cloud.calls import CloudCall, text_of
from webapp.api.cloud.upload_form import UploadForm
from webapp.api.media import service
from webapp.api.media.service import MediaStore
from webapp.api.media.transfer import ByteRange, FileResponse, received
from webapp.http import headers
from webapp.http.errors import APIError, BodyTooLarge, InvalidRequest

NODE_TYPE = "WhatsAppBusinessMedia"
_OFFICE = "application/vnd.openxmlformats-officedocument."
TYPES = (
    "audio/aac",
    "audio/mp4",
    "audio/mpeg",
    "audio/mp3",
    "audio/amr",
    "audio/ogg",
    "audio/opus",
    "application/vnd.ms-powerpoint",
    "application/msword",
    f"{_OFFICE}wordprocessingml.document",
    f"{_OFFICE}presentationml.presentation",
    f"{_OFFICE}spreadsheetml.sheet",
    "application/pdf",
    "text/plain",
    "application/vnd.ms-excel",
    "image/jpeg",
    "image/png",
    "image/webp",
    "video/mp4",
    "video/3gpp",
)
# Types under the names that the store knows them by.
_NAMES = {"audio/mp3": "audio/mpeg", "audio/ogg": kinds.OPUS, "audio/opus": kinds.OPUS}
_RANGE = re.compile(rb"bytes=([0-9]{0,15})-([0-9]{0,15})")


async def upload(call: CloudCall) -> Response:
    form = UploadForm(received(call.request), headers.find(call.request.scope, b"content-type") or b"")
    declared, filename = await form.find_file()
    kind = _type_of(declared, form.fields.get("type", ""), filename)
    media = call.find(MediaStore)
    try:
        media_type = service.read_type(_NAMES.get(kind, kind))
        media_id = await media.upload(
            call.caller, media_type, form.content(), request_id=call.request_id, cloud_ms=media_ids.UPLOADED_MS
        )
    except BodyTooLarge as error:
        raise errors.invalid(error.problems[0].details) from None
    except InvalidRequest as error:
        if error.problems[0].code not in (codes.PARAMETER_INVALID, codes.PARAMETER_MISSING):
            raise
        raise errors.invalid(error.problems[0].details) from None
    try:
        await form.finish()
        if form.fields.get("messaging_product", text_of(call.query(), "messaging_product")).lower() != "whatsapp":
            raise errors.missing("messaging_product")
    except (errors.GraphError, APIError):
        await media.delete(call.caller, media_id)
        raise
    return call.respond({"id": media_ids.encode(media_id)}, kind=responses.MESSAGING)


def _type_of(declared: str, field: str, filename: str) -> str:
    """Return the type of a file without parameters: of its part, of the field `type`, or by its name.

    Raises `GraphError` for a type that the Cloud API does not take.
    """
    found = declared
    if not found or found.startswith(kinds.UNKNOWN):
        found = field or mimetypes.guess_type(filename)[0] or found or kinds.UNKNOWN
    kind = found.partition(";")[0].strip().lower()
    if kind not in TYPES:
        listed = ", ".join(TYPES)
        message = f"(#100) Param file must be a file with one of the following types: {listed}. Received file of type "
        raise errors.GraphError(f"{message}'{kind[:100]}'.")
    return kind


async def show(call: CloudCall) -> Response:
    found = await _find(call)
    described = {
        "url": call.find(MediaLinks).url(call.api_url, call.identity.account, call.target.node),
        "mime_type": found.mime_type.partition(";")[0],
        "sha256": found.sha256,
        "file_size": found.size,
        "id": call.target.node,
        "messaging_product": "whatsapp",
    }
    chosen = fields.select(described, call.query().get("fields"), node_type=NODE_TYPE, default=tuple(described))
    return call.respond(chosen, kind=responses.MESSAGING)


async def delete(call: CloudCall) -> Response:
    found = await _find(call)
    try:
        await call.find(MediaStore).delete(call.caller, found.id)
    except InvalidRequest:
        # Another request has deleted it since.
        raise call.unsupported() from None
    return call.success(kind=responses.MESSAGING)


async def download(call: CloudCall) -> Response:
    """Return the bytes of a file, all or those in `Range`. Responds with 404 to an invalid or expired URL."""
    query = call.query()
    media_id, expires_at, signature = (text_of(query, name) for name in ("mid", "ext", "hash"))
    links, media = call.find(MediaLinks), call.find(MediaStore)
    if not links.is_valid(call.identity.account, media_id, expires_at, signature):
        raise errors.no_such_url()
    row = await media.describe(call.caller, media_id)
    if row is None:
        raise errors.no_such_url()
    part = read_range(headers.find(call.request.scope, b"range"), row.size)
    media.downloads.take()
    try:
        found, file = await media.open(call.caller, row.id)
    except BaseException:
        media.downloads.release()
        raise
    response = FileResponse(
        file,
        found.size,
        found.mime_type,
        done=media.downloads.release,
        with_body=not getattr(call.request.state, "without_body", False),
        part=part,
    )
    response.raw_headers += [responses.NOT_CACHED, *responses.headers_of(call.target.version, call.trace)]
    return response


def read_range(header: bytes | None, size: int) -> ByteRange | None:
    """Return the requested part of a file; `None` for the whole file. Raises `GraphError` for one beyond its end.

    Several ranges, and headers that are none, are ignored, as RFC 9110 allows.
    """
    found = _RANGE.fullmatch(header.strip()) if header is not None else None
    if found is None or not (found[1] or found[2]):
        return None
    first = int(found[1]) if found[1] else max(size - int(found[2]), 0)
    last = min(int(found[2]), size - 1) if found[1] and found[2] else size - 1
    if found[1] and found[2] and int(found[2]) < first:
        return None
    if first >= size or (not found[1] and int(found[2]) == 0):
        raise errors.range_beyond(size)
    return ByteRange(first, last)


async def _find(call: CloudCall) -> MediaRow:
    """Return the row of the file that the call names. Raises `GraphError` for another number's file."""
    number = text_of(call.query(), "phone_number_id")
    if number and number != call.identity.phone_number_id:
        raise call.unsupported()
    found = await call.find(MediaStore).describe(call.caller, call.target.node)
    if found is None:
        raise call.unsupported()
    return found
