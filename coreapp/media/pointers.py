"""The media objects in a message's content: where they are, and the pointers that take their place for a recipient."""

from __future__ import annotations

import base64
import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

KINDS = ("image", "audio", "video", "document", "sticker")

_decode = msgspec.json.Decoder(dict[str, Any]).decode
_encode = msgspec.json.Encoder().encode


@dataclasses.dataclass(frozen=True, slots=True)
class Source:
    """Where a file of a message is: `id` of one that was uploaded, or a `link` and the provider's name for it.

    kind: of the media object, which a link's file must fit; empty for an id.
    in_template: a link in the header of a template, where a document must be a PDF; false for an id.
    """

    id: str = ""
    link: str = ""
    provider: str = ""
    kind: str = ""
    in_template: bool = False


@dataclasses.dataclass(frozen=True, slots=True)
class Pointer:
    """What a recipient needs to fetch a file and to read it.

    key: 64 bytes; digest: SHA-256 of the ciphertext; size: bytes of plaintext; sha256: of the plaintext, in hex.
    filename: the file's own, for documents that are given none.
    """

    blob: str
    key: bytes = dataclasses.field(repr=False)
    digest: bytes
    size: int
    mime_type: str
    sha256: str
    filename: str = ""


class Content:
    """A message's content with its media objects. `encoded()` is what it has become."""

    def __init__(self, encoded: bytes) -> None:
        """Raises `ValueError` for what is no content."""
        self._fields = _decode(encoded)
        # By the path of the field, as it is named to the business.
        self.objects: dict[str, tuple[str, dict[str, Any]]] = {
            path: (kind, found) for path, kind, found in _media_objects(self._fields) if "blob" not in found
        }

    def sources(self) -> Mapping[str, Source]:
        """Where the files are that have no pointer yet, by field."""
        in_template = self._fields.get("type") == "template"
        return {path: _source(kind, found, in_template) for path, (kind, found) in self.objects.items()}

    def point(self, path: str, pointer: Pointer) -> None:
        """Put a pointer in the place of `id` or `link`; caption and file name stay."""
        kind, found = self.objects.pop(path)
        for name in ("id", "link", "provider"):
            found.pop(name, None)
        found.update(
            blob=pointer.blob,
            key=base64.b64encode(pointer.key).decode(),
            digest=base64.b64encode(pointer.digest).decode(),
            size=pointer.size,
            mime_type=pointer.mime_type,
            sha256=pointer.sha256,
        )
        if kind == "document" and pointer.filename and "filename" not in found:
            found["filename"] = pointer.filename

    def encoded(self) -> bytes:
        return _encode(self._fields)


def has_sources(encoded: bytes) -> bool:
    """Does this content have media objects without a pointer? Never raises."""
    try:
        return bool(Content(encoded).objects)
    except ValueError:
        return False


def _media_objects(fields: Mapping[str, Any]) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """(path, kind, object) of each media object: a message's own, and those of headers, of cards too."""
    kind = fields.get("type")
    if kind in KINDS:
        yield from _held(fields, kind, kind)
    elif kind == "interactive":
        header = _mapping(_mapping(fields.get("interactive")).get("header"))
        yield from _held(header, header.get("type"), f"interactive.header.{header.get('type')}")
    elif kind == "template":
        where, parts = "template.components", _sequence(_mapping(fields.get("template")).get("components"))
        yield from _of_parts(parts, where)
        for n, part in enumerate(parts):
            for m, card in enumerate(_sequence(_mapping(part).get("cards"))):
                inside = _sequence(_mapping(card).get("components"))
                yield from _of_parts(inside, f"{where}[{n}].cards[{m}].components")


def _of_parts(parts: list[Any], where: str) -> Iterator[tuple[str, str, dict[str, Any]]]:
    for n, part in enumerate(parts):
        for m, parameter in enumerate(_sequence(_mapping(part).get("parameters"))):
            named = _mapping(parameter).get("type")
            yield from _held(_mapping(parameter), named, f"{where}[{n}].parameters[{m}].{named}")


def _held(holder: Mapping[str, Any], kind: Any, path: str) -> Iterator[tuple[str, str, dict[str, Any]]]:
    if kind in KINDS and isinstance(holder.get(kind), dict):
        yield path, kind, holder[kind]


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _sequence(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _source(kind: str, found: Mapping[str, Any], in_template: bool) -> Source:
    if found.get("id"):
        return Source(id=str(found["id"]))
    provider = _mapping(found.get("provider")).get("name") or ""
    return Source(link=str(found.get("link") or ""), provider=str(provider), kind=kind, in_template=in_template)
