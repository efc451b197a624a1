"""Media objects in the content of messages, and the pointers with which recipients fetch their files."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Annotated, Any

import msgspec
from msgspec import Meta

KINDS = ("image", "video", "audio", "voice", "document", "sticker")
MAX_FILE = 100 * 1024 * 1024  # bytes


class Pointer(msgspec.Struct, gc=False, frozen=True, omit_defaults=True):
    """Location and keys of a file that is stored in the network. Bytes are base64 in JSON."""

    blob: Annotated[str, Meta(pattern=r"^[A-Za-z0-9_-]{1,64}\Z")]  # id
    key: Annotated[bytes, Meta(min_length=64, max_length=64)]
    digest: Annotated[bytes, Meta(min_length=32, max_length=32)]  # SHA-256 of the blob
    size: Annotated[int, Meta(ge=0, le=MAX_FILE)]  # bytes of the file

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.blob}, {self.size} bytes)"


class FilePointer(Pointer, frozen=True):
    """Pointer as it stands in a media object."""

    mime_type: Annotated[str, Meta(max_length=255)]
    sha256: Annotated[str, Meta(pattern=r"^[0-9a-fA-F]{64}\Z")]  # of the file, hexadecimal
    caption: str | None = None
    filename: str | None = None


def find(kind: object, content: object, kinds: Collection[str] = KINDS) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Yield (path, kind, object) for each media object in the content of a message, including those of headers.

    path: location of the object, as error messages name it to the sender
    """
    if kind in kinds:
        yield from _held({kind: content}, kind, f"{kind}", kinds)
    elif kind == "interactive":
        header = _mapping(_mapping(content).get("header"))
        yield from _held(header, header.get("type"), f"interactive.header.{header.get('type')}", kinds)
        cards = _sequence(_mapping(_mapping(content).get("action")).get("cards"))
        for n, card in enumerate(cards):
            header = _mapping(_mapping(card).get("header"))
            named = header.get("type")
            yield from _held(header, named, f"interactive.action.cards[{n}].header.{named}", kinds)
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
