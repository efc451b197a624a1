"""The files that a message points to: where the network has each, what opens it, and what to call it."""

from __future__ import annotations

import mimetypes
import os
from collections.abc import Iterator, Mapping
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from tidings.e2ee import attachments
from tidings.media import kinds
from tidings.wire.decoding import UNREADABLE

KINDS = ("image", "video", "audio", "voice", "document", "sticker")
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


class Pointer(msgspec.Struct, gc=False, frozen=True):
    """One file.

    kind:   `image`, `voice` …; blob: what the network calls it; key, digest: what opens it.
    size:   bytes of the file; sha256: of the file, in hexadecimal.
    """

    kind: str
    blob: Annotated[str, Meta(pattern="^[A-Za-z0-9_-]{1,64}$")]
    key: Annotated[bytes, Meta(min_length=attachments.KEY_LENGTH, max_length=attachments.KEY_LENGTH)]
    digest: Annotated[bytes, Meta(min_length=attachments.DIGEST_LENGTH, max_length=attachments.DIGEST_LENGTH)]
    size: Annotated[int, Meta(ge=0, le=kinds.MAX_SIZE)]
    mime_type: Annotated[str, Meta(max_length=kinds.MAX_LENGTH)]
    sha256: Annotated[str, Meta(pattern="^[0-9a-fA-F]{64}$")]
    caption: str | None = None
    filename: str | None = None

    def __repr__(self) -> str:
        return f"Pointer({self.kind}, {self.blob}, {self.size} bytes)"

    @property
    def name(self) -> str:
        """A plain file name: nothing in it leads anywhere else."""
        return name_of(self.kind, self.filename or "", self.mime_type, self.sha256)


def content_of(pointer: Pointer) -> dict[str, Any]:
    """The content of a message that sends this file on: whoever may read it gets the same key."""
    inside = {name: value for name, value in msgspec.to_builtins(pointer).items() if value is not None}
    kind = inside.pop("kind")
    return {"type": kind, kind: inside}


def find(kind: str, raw: str) -> list[Pointer]:
    """The files of a message, by its type and its JSON: its own, or those of a header. Never raises."""
    try:
        content = msgspec.json.decode(raw).get(kind)
    except (*UNREADABLE, AttributeError):
        return []
    found = []
    for name, node in _media_objects(kind, content):
        try:
            found.append(msgspec.convert({**node, "kind": name}, Pointer))
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


def _media_objects(kind: str, content: Any) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """(kind, object) of each media object."""
    if kind in KINDS:
        yield from _held({kind: content}, kind)
    elif kind == "interactive":
        header = _mapping(_mapping(content).get("header"))
        yield from _held(header, header.get("type"))
    elif kind in ("template", "hsm"):
        parts = _sequence(_mapping(content).get("components"))
        cards = [card for part in parts for card in _sequence(_mapping(part).get("cards"))]
        for part in [*parts, *(part for card in cards for part in _sequence(_mapping(card).get("components")))]:
            for parameter in _sequence(_mapping(part).get("parameters")):
                yield from _held(_mapping(parameter), _mapping(parameter).get("type"))


def _held(holder: Mapping[str, Any], kind: Any) -> Iterator[tuple[str, Mapping[str, Any]]]:
    if isinstance(kind, str) and kind in KINDS and isinstance(holder.get(kind), dict):
        yield kind, holder[kind]


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _sequence(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []
