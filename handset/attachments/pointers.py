"""Pointers to the files in a message, and names for saved files."""

from __future__ import annotations

import mimetypes
import os
from typing import Any

import msgspec

from tidings.media import kinds
from tidings.wire import media_objects
from tidings.wire.decoding import UNREADABLE
from tidings.wire.media_objects import FilePointer

MAX_NAME, MAX_EXTENSION = 120, 16  # bytes; file systems allow 255, and a number may be appended

# Uses only the types that Python knows, so that names are the same on every machine.
TYPES = mimetypes.MimeTypes(filenames=())
for _text, _suffix in (
    (kinds.OPUS, ".ogg"),
    (kinds.OPUS, ".opus"),
    ("audio/mp4", ".m4a"),
    ("audio/amr", ".amr"),
    ("audio/aac", ".aac"),
    ("audio/mpeg", ".mp3"),
    ("image/webp", ".webp"),
    ("video/3gpp", ".3gp"),
):
    TYPES.add_type(_text, _suffix)
_EXTENSIONS = {"image/jpeg": ".jpg", "audio/mpeg": ".mp3", kinds.OPUS: ".ogg", "text/plain": ".txt"}


class AttachmentPointer(FilePointer, frozen=True):
    """Pointer to a file in a message."""

    kind: str = ""  # for example `image` or `voice`

    @property
    def name(self) -> str:
        """Return a plain file name without any directories."""
        return name_of(self.kind, self.filename or "", self.mime_type, self.sha256)


def content_of(attachment: AttachmentPointer) -> dict[str, Any]:
    """Return the content of a message that forwards this file. Its recipient gets the same key."""
    inside = msgspec.to_builtins(attachment)
    kind = inside.pop("kind")
    return {"type": kind, kind: inside}


def find(kind: str, raw: str) -> list[AttachmentPointer]:
    """Return the pointers to the files of a message, including those in headers. Never raises.

    kind: type of the message
    raw: content as JSON
    """
    try:
        content = msgspec.json.decode(raw).get(kind)
    except (*UNREADABLE, AttributeError):
        return []
    nodes = media_objects.find("template" if kind == "hsm" else kind, content)
    found = (pointer_of(name, node) for _, name, node in nodes)
    return [pointer for pointer in found if pointer is not None]


def pointer_of(kind: str, node: Any) -> AttachmentPointer | None:
    """Return the pointer in a media object; `None` for one without a valid pointer."""
    if not isinstance(node, dict):
        return None
    try:
        return msgspec.convert({**node, "kind": kind}, AttachmentPointer)
    except msgspec.ValidationError:
        return None


def name_of(kind: str, filename: str, mime_type: str, sha256: str) -> str:
    """Return a name for a saved file: its original name without unsafe characters, or one derived from its hash.

    Empty when there is neither a name nor a hash.
    """
    last = filename.replace("\\", "/").rpartition("/")[2]
    plain = "".join(c if c.isprintable() and c not in '<>:"|?*' else "_" for c in last).strip().lstrip(".")
    if plain:
        stem, extension = os.path.splitext(plain)
        extension = _cut(extension, MAX_EXTENSION)
        return _cut(stem, MAX_NAME - len(extension.encode())) + extension
    return f"{kind}-{sha256[:8].lower()}{_extension(mime_type)}" if sha256[:8].isalnum() else ""


def _cut(text: str, size: int) -> str:
    """Return the longest prefix that has at most `size` bytes."""
    return text.encode()[:size].decode(errors="ignore")


def _extension(mime_type: str) -> str:
    known = _EXTENSIONS.get(mime_type) or TYPES.guess_extension(mime_type.partition(";")[0].strip().lower())
    return known or ".bin"
