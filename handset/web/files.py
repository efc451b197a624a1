"""Files of messages, and the static files of the pages."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator

from starlette.responses import Response, StreamingResponse

from handset import message_parts
from handset.attachments import transfer
from handset.attachments.pointers import AttachmentPointer
from handset.web import strings, view
from handset.web.site import HandsetRequest, PageFailure, whole_number
from tidings.media import kinds
from tidings.media.errors import UnusableType
from tidings.pages import headers

_EMBEDDED = frozenset(text for types in view.INLINE.values() for text in types)


async def asset(page: HandsetRequest) -> Response:
    found = page.site.assets.respond(page.request, page.path("name"))
    if found is None:
        raise PageFailure(404, strings.NOT_FOUND)
    return found


async def received(page: HandsetRequest) -> Response:
    """Send a file of a message. It is fetched from the network, authenticated, and never a document of our origin."""
    phone = page.phone()
    found = await view.find(phone, whole_number(page.path("position")))
    if found is None:
        raise PageFailure(404, strings.NO_SUCH_MESSAGE)
    files = message_parts.files_of(message_parts.read(found[0].kind, found[1]))
    index = whole_number(page.path("index"))
    if index >= len(files):
        raise PageFailure(404, strings.NO_SUCH_MESSAGE)
    pointer = files[index]
    chunks = _chunks(page, transfer.fetch(page.site.api, phone.own.device, pointer, folder=page.site.directory))
    # The first chunk shows whether the file is there, and whether it is of its type.
    head = await anext(chunks, b"")
    sent = {**headers.of_file(pointer.name), "Content-Length": str(pointer.size)}
    return StreamingResponse(_all(head, chunks), media_type=_type_of(pointer, head), headers=sent)


async def _chunks(page: HandsetRequest, source: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    async with page.site.downloads, contextlib.aclosing(source):  # type: ignore[type-var]
        async for chunk in source:
            yield chunk


async def _all(head: bytes, rest: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    async with contextlib.aclosing(rest):  # type: ignore[type-var]
        yield head
        async for chunk in rest:
            yield chunk


def _type_of(pointer: AttachmentPointer, head: bytes) -> str:
    """Return the type of a file that a page may embed if its content is of this type; otherwise that of any bytes."""
    try:
        media_type = kinds.parse(pointer.mime_type)
        if media_type.text.partition(";")[0] in _EMBEDDED and media_type.kind != kinds.DOCUMENT:
            media_type.check(head[: kinds.HEAD])
            return media_type.text
    except UnusableType:
        pass
    return kinds.UNKNOWN
