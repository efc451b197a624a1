"""The flat form of a header's file, which some clients send: `{"type": "image", "link": …}`."""

from __future__ import annotations

from typing import Any, Literal

import pydantic
from pydantic.config import JsonDict

from webapp.messages.fields import SOURCES, Document, Media, Picture

_TYPES = ("image", "video", "document")


def _beside(kind: str) -> JsonDict:
    """Describes a media object beside its `type`, where there is none under the name of the type."""
    return {**SOURCES, "not": {"required": [kind], "properties": {kind: {"type": "object"}}}}


class ImageBesideType(Picture):
    """The flat form of a picture, which some clients send."""

    model_config = pydantic.ConfigDict(json_schema_extra=_beside("image"))

    type: Literal["image"]


class VideoBesideType(Picture):
    """The flat form of a video, which some clients send."""

    model_config = pydantic.ConfigDict(json_schema_extra=_beside("video"))

    type: Literal["video"]


class DocumentBesideType(Document):
    """The flat form of a document, which some clients send."""

    model_config = pydantic.ConfigDict(json_schema_extra=_beside("document"))

    type: Literal["document"]


def picture(flat: ImageBesideType | VideoBesideType) -> Picture:
    return Picture.model_construct(**_without_type(flat))


def document(flat: DocumentBesideType) -> Document:
    return Document.model_construct(**_without_type(flat))


def is_flat(value: Any) -> bool:
    """Is this an object with a file beside its type? One with neither is not: the usual form is what is missing."""
    if not isinstance(value, dict):
        return False
    kind = value.get("type")
    return kind in _TYPES and not isinstance(value.get(kind), dict) and bool(value.get("id") or value.get("link"))


def _without_type(flat: Media) -> dict[str, Any]:
    return {name: value for name, value in flat if name != "type"}
