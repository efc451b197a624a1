"""Request bodies and responses of `/v1/media`."""

from __future__ import annotations

import re
from typing import Any

import pydantic

from tidings.media import kinds
from webapp.http.openapi.document import Meta

# Ids are UUIDs in the form of `str(uuid)`.
ID_PATTERN = "^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$"
is_id = re.compile(ID_PATTERN.rstrip("$") + r"\Z").match

_FILE = {"schema": {"type": "string", "format": "binary"}}
_TYPES = [text for kind in kinds.KINDS for text in kinds.types_of(kind)]

# Any type is accepted. The types whose content is verified are listed.
UPLOAD: dict[str, Any] = {
    "required": True,
    "description": (
        "The file with its Content-Type. The content of a listed type is verified; any other type is a document of at "
        f"most {kinds.LIMITS[kinds.DOCUMENT]} bytes."
    ),
    "content": {
        **dict.fromkeys(_TYPES, _FILE),
        kinds.UNKNOWN: {"schema": {"type": "string", "format": "binary", "minLength": 1}},
    },
}
DOWNLOAD: dict[str, Any] = {
    "description": "The file, with the Content-Type that it was uploaded with",
    "headers": {"Content-Length": {"schema": {"type": "integer"}, "description": "Bytes of the file"}},
    "content": {"*/*": _FILE},
}


class MediaId(pydantic.BaseModel):
    """Id by which messages name the file."""

    id: str = pydantic.Field(pattern=ID_PATTERN, examples=["0d0e1a6a-38bb-4a7b-9d59-37ba5eee6a5e"])


class MediaResponse(pydantic.BaseModel):
    """Response to an upload. The file is on disk."""

    media: list[MediaId]
    meta: Meta
