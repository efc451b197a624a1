"""Responses of `/v1/services`."""

from __future__ import annotations

from typing import Any, Literal

import pydantic

from webapp.http.openapi.document import Meta


class CollectionState(pydantic.BaseModel):
    """State of the garbage collection. With several Coreapps there is one such object per Coreapp, under its name."""

    model_config = pydantic.ConfigDict(extra="allow")

    status: Literal["processing", "failed"] | None = None


class Collection(pydantic.BaseModel):
    """Garbage collection of one kind of data."""

    gc: CollectionState


class CollectionAnswer(pydantic.BaseModel):
    """Response under `message` or `media`. The result follows as a callback."""

    services: dict[Literal["message", "media"], Collection] = pydantic.Field(
        examples=[{"message": {"gc": {"status": "processing"}}}]
    )
    meta: Meta


def describe(kind: str, state: Any) -> dict[str, Any]:
    """Return the response without `meta`."""
    return {"services": {kind: {"gc": state}}}
