"""Files that an outbound message names by id or link, and the pointers that replace them."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import msgspec

from tidings.media import kinds
from tidings.wire import media_objects
from tidings.wire.media_objects import FilePointer

_decode = msgspec.json.Decoder(dict[str, Any]).decode
_encode = msgspec.json.Encoder().encode


@dataclasses.dataclass(frozen=True, slots=True)
class MediaSource:
    """Location of a message's file: the `id` of an uploaded file, or a `link` with the name of its provider."""

    id: str = ""
    link: str = ""
    provider: str = ""  # name of the provider, empty for none
    kind: str = ""  # kind of the media object, which a link's file must match; empty for an id
    # whether a link is in the header of a template, where a document must be a PDF; false for an id
    in_template: bool = False


class MediaContent:
    """Content of a message with its media objects. `encoded()` returns the result."""

    def __init__(self, encoded: bytes) -> None:
        """Parse a content. Raises `ValueError` for an invalid one."""
        self._fields = _decode(encoded)
        type_ = str(self._fields.get("type"))
        # By the path of the field, as errors to the business name it.
        self.objects: dict[str, tuple[str, dict[str, Any]]] = {
            path: (kind, found)
            for path, kind, found in media_objects.find(type_, self._fields.get(type_), kinds.KINDS)
            if "blob" not in found
        }

    def sources(self) -> Mapping[str, MediaSource]:
        """Return the sources of the files that have no pointer yet, by field."""
        in_template = self._fields.get("type") == "template"
        return {path: _source(kind, found, in_template) for path, (kind, found) in self.objects.items()}

    def point(self, path: str, pointer: FilePointer) -> None:
        """Replace `id` or `link` by a pointer. Caption and file name stay; a document without a file name gets the
        pointer's.
        """
        kind, found = self.objects.pop(path)
        for name in ("id", "link", "provider"):
            found.pop(name, None)
        pointed: dict[str, Any] = msgspec.to_builtins(pointer)
        filename = pointed.pop("filename", None)
        found.update(pointed)
        if kind == kinds.DOCUMENT and filename is not None:
            found.setdefault("filename", filename)

    def encoded(self) -> bytes:
        return _encode(self._fields)


def has_sources(encoded: bytes) -> bool:
    """Return whether this content has media objects without a pointer. Never raises."""
    try:
        return bool(MediaContent(encoded).objects)
    except ValueError:
        return False


def _source(kind: str, found: Mapping[str, Any], in_template: bool) -> MediaSource:
    if found.get("id"):
        return MediaSource(id=str(found["id"]))
    provider = found.get("provider")
    provider = (provider.get("name") or "") if isinstance(provider, dict) else ""
    return MediaSource(link=str(found.get("link") or ""), provider=str(provider), kind=kind, in_template=in_template)
