"""Answers of `/v1/services`."""

from __future__ import annotations

from typing import Any, Literal

import pydantic

from webapp.openapi import Meta


class CollectionState(pydantic.BaseModel):
    """With several Coreapps there is one such object for each, by its name."""

    model_config = pydantic.ConfigDict(extra="allow")

    status: Literal["processing", "failed"] | None = None


class Collection(pydantic.BaseModel):
    """The state of the collection."""

    gc: CollectionState


class CollectionAnswer(pydantic.BaseModel):
    """Under `message` or `media`; the result comes by webhook."""

    services: dict[Literal["message", "media"], Collection] = pydantic.Field(
        examples=[{"message": {"gc": {"status": "processing"}}}]
    )
    meta: Meta


def describe(kind: str, state: Any) -> dict[str, Any]:
    """The answer, but for `meta`."""
    return {"services": {kind: {"gc": state}}}
