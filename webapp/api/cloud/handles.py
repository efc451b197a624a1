"""Handles of uploaded files, which templates and the profile name."""

from __future__ import annotations

import base64
import binascii
import uuid
from collections.abc import Iterator, Sequence
from typing import Any

from tidings.media import kinds
from tidings.storage.business.media import MediaRow
from webapp.api.cloud import errors
from webapp.api.cloud.calls import CloudCall
from webapp.api.media.service import MediaStore

PREFIX = "4::"
HEADER_REFUSED = 2388047  # subcode
MAX_SAMPLES = 50  # handles of one template
_KINDS = {"IMAGE": kinds.IMAGE, "VIDEO": kinds.VIDEO, "GIF": kinds.VIDEO, "DOCUMENT": kinds.DOCUMENT}


def encode(media_id: str, mime_type: str) -> str:
    """Return the handle of a file.

    media_id: our own id of the file
    """
    named = base64.b64encode(mime_type.encode()).decode()
    return f"{PREFIX}{named}:{base64.urlsafe_b64encode(uuid.UUID(media_id).bytes).decode().rstrip('=')}"


def decode(handle: str) -> str | None:
    """Return our own id of a file by its handle; `None` for text that is no handle."""
    if not handle.startswith(PREFIX):
        return None
    _, _, name = handle.rpartition(":")
    try:
        return str(uuid.UUID(bytes=base64.urlsafe_b64decode(f"{name}==")))
    except (binascii.Error, ValueError):
        return None


async def find(call: CloudCall, handle: object, accounts: Sequence[str]) -> MediaRow | None:
    """Return the file of a handle; `None` unless it belongs to one of the numbers and has not expired."""
    media_id = decode(handle) if isinstance(handle, str) else None
    return await call.find(MediaStore).find(accounts, media_id) if media_id is not None else None


async def check_samples(call: CloudCall, components: object) -> None:
    """Raise `GraphError` unless the sample files of a template's headers are handles of files that fit them.

    The files may be uploads of any number of the WABA, which templates and app belong to.
    """
    samples = list(_samples(components))
    if len(samples) > MAX_SAMPLES:
        raise errors.invalid(f"components: have {len(samples)} header_handle, the limit is {MAX_SAMPLES}")
    members = call.directory.accounts_of(call.identity.waba_id)
    for kind, handle in samples:
        found = await find(call, handle, members)
        if found is None:
            raise _refused("header_handle is not the handle of an upload of this account")
        if found.kind != kind:
            raise _refused(f"header_handle is a file of the type {found.mime_type}, the header shows {kind}")


def _samples(components: object) -> Iterator[tuple[str, object]]:
    """Yield the kind and the handle of each sample file in components, also those of a carousel's cards."""
    for part in components if isinstance(components, list) else ():
        if not isinstance(part, dict):
            continue
        kind = _KINDS.get(str(part.get("format")).upper())
        example: Any = part.get("example")
        if kind is not None and isinstance(example, dict):
            given = example.get("header_handle")
            if isinstance(given, list):
                yield from ((kind, handle) for handle in given)
            elif given is not None:
                yield kind, given
        cards = part.get("cards")
        for card in cards if isinstance(cards, list) else ():
            if isinstance(card, dict):
                yield from _samples(card.get("components"))


def _refused(words: str) -> errors.GraphError:
    return errors.for_user(HEADER_REFUSED, "Message template header is not valid", words)
