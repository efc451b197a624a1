"""Media objects in the content of messages: where they are, and the pointers by which recipients have their files."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Annotated, Any

import msgspec
from msgspec import Meta

KINDS = ("image", "video", "audio", "voice", "document", "sticker")
MAX_FILE = 100 * 1024 * 1024  # bytes


class Pointer(msgspec.Struct, gc=False, frozen=True, omit_defaults=True):
    """Where the network has a file, and what opens it.

    key: 64 bytes; digest: SHA-256 of the blob; size: bytes of the file. Bytes are base64 in JSON.
    """

    blob: Annotated[str, Meta(pattern=r"^[A-Za-z0-9_-]{1,64}\Z")]
    key: Annotated[bytes, Meta(min_length=64, max_length=64)]
    digest: Annotated[bytes, Meta(min_length=32, max_length=32)]
    size: Annotated[int, Meta(ge=0, le=MAX_FILE)]

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.blob}, {self.size} bytes)"


class FilePointer(Pointer, frozen=True):
    """What stands in a media object. sha256: of the file, in hexadecimal."""

    mime_type: Annotated[str, Meta(max_length=255)]
    sha256: Annotated[str, Meta(pattern=r"^[0-9a-fA-F]{64}\Z")]
    caption: str | None = None
    filename: str | None = None


def find(kind: object, content: object, kinds: Collection[str] = KINDS) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """(path, kind, object) of each media object in the content of a message: its own, and those of headers.

    path: of the object, as it is named to whoever sent the message.
    """
    if kind in kinds:
        yield from _held({kind: content}, kind, f"{kind}", kinds)
    elif kind == "interactive":
        header = _mapping(_mapping(content).get("header"))
        yield from _held(header, header.get("type"), f"interactive.header.{header.get('type')}", kinds)
    elif kind == "template":
        where, parts = "template.components", _sequence(_mapping(content).get("components"))
        yield from _of_parts(parts, where, kinds)
        for n, part in enumerate(parts):
            for m, card in enumerate(_sequence(_mapping(part).get("cards"))):
                inside = _sequence(_mapping(card).get("components"))
                yield from _of_parts(inside, f"{where}[{n}].cards[{m}].components", kinds)


def _of_parts(parts: list[Any], where: str, kinds: Collection[str]) -> Iterator[tuple[str, str, dict[str, Any]]]:
    for n, part in enumerate(parts):
        for m, parameter in enumerate(_sequence(_mapping(part).get("parameters"))):
            named = _mapping(parameter).get("type")
            yield from _held(_mapping(parameter), named, f"{where}[{n}].parameters[{m}].{named}", kinds)


def _held(
    holder: Mapping[Any, Any], kind: object, path: str, kinds: Collection[str]
) -> Iterator[tuple[str, str, dict[str, Any]]]:
    if isinstance(kind, str) and kind in kinds and isinstance(holder.get(kind), dict):
        yield path, kind, holder[kind]


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _sequence(value: object) -> list[Any]:
    return value if isinstance(value, list) else []
