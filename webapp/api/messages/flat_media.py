"""The flat form of a header's file, which some clients send: `{"type": "image", "link": …}`."""

from __future__ import annotations

from typing import Any, Literal

import pydantic
from pydantic.config import JsonDict

from webapp.api.messages.fields import SOURCES, Document, Media, Picture

_TYPES = ("image", "video", "document")


def _beside(kind: str) -> JsonDict:
    """Return a schema for a media object next to its `type`, without an object under the name of the type."""
    return {**SOURCES, "not": {"required": [kind], "properties": {kind: {"type": "object"}}}}


class ImageBesideType(Picture):
    """A picture in the flat form, which some clients send."""

    model_config = pydantic.ConfigDict(json_schema_extra=_beside("image"))

    type: Literal["image"]


class VideoBesideType(Picture):
    """A video in the flat form, which some clients send."""

    model_config = pydantic.ConfigDict(json_schema_extra=_beside("video"))

    type: Literal["video"]


class DocumentBesideType(Document):
    """A document in the flat form, which some clients send."""

    model_config = pydantic.ConfigDict(json_schema_extra=_beside("document"))

    type: Literal["document"]


def picture(flat: ImageBesideType | VideoBesideType) -> Picture:
    return Picture.model_construct(**_without_type(flat))


def document(flat: DocumentBesideType) -> Document:
    return Document.model_construct(**_without_type(flat))


def is_flat(value: Any) -> bool:
    """Return whether this object has a file next to its type.

    An object without any file is not flat, so that its error names the usual form.
    """
    if not isinstance(value, dict):
        return False
    kind = value.get("type")
    return kind in _TYPES and not isinstance(value.get(kind), dict) and bool(value.get("id") or value.get("link"))


def _without_type(flat: Media) -> dict[str, Any]:
    return {name: value for name, value in flat if name != "type"}
