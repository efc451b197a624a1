"""The files that a message points to: where the network has each, what opens it, and what to call it."""

from __future__ import annotations

import mimetypes
import os
from typing import Any

import msgspec

from tidings.media import kinds
from tidings.wire import media_objects
from tidings.wire.decoding import UNREADABLE
from tidings.wire.media_objects import FilePointer

MAX_NAME, MAX_EXTENSION = 120, 16  # bytes; file systems take 255, and a number may follow

# Only what is known to Python itself: the same names on every machine.
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


class Attachment(FilePointer, frozen=True):
    """One file. kind: `image`, `voice` …"""

    kind: str = ""

    @property
    def name(self) -> str:
        """A plain file name: nothing in it leads anywhere else."""
        return name_of(self.kind, self.filename or "", self.mime_type, self.sha256)


def content_of(attachment: Attachment) -> dict[str, Any]:
    """The content of a message that sends this file on: whoever may read it gets the same key."""
    inside = msgspec.to_builtins(attachment)
    kind = inside.pop("kind")
    return {"type": kind, kind: inside}


def find(kind: str, raw: str) -> list[Attachment]:
    """The files of a message, by its type and its JSON: its own, or those of a header. Never raises."""
    try:
        content = msgspec.json.decode(raw).get(kind)
    except (*UNREADABLE, AttributeError):
        return []
    found = []
    for _, name, node in media_objects.find("template" if kind == "hsm" else kind, content):
        try:
            found.append(msgspec.convert({**node, "kind": name}, Attachment))
        except msgspec.ValidationError:
            continue
    return found


def name_of(kind: str, filename: str, mime_type: str, sha256: str) -> str:
    """What to call a file on disk: the name it came with as far as that is harmless, or one made from its content.

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
    """As many characters as have `size` bytes."""
    return text.encode()[:size].decode(errors="ignore")


def _extension(mime_type: str) -> str:
    known = _EXTENSIONS.get(mime_type) or TYPES.guess_extension(mime_type.partition(";")[0].strip().lower())
    return known or ".bin"
