"""`/v1/services`: have the Coreapps delete expired messages and media."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Annotated, Any, Literal

import pydantic
from fastapi import APIRouter, Response

from tidings.wire import core
from webapp.auth.authenticator import Administrator
from webapp.auth.tokens import Caller
from webapp.coreapps.interfaces import AllCoreapps
from webapp.http import responses
from webapp.http.dependencies import part
from webapp.http.errors import CoreappUnavailable
from webapp.http.openapi.document import RESPONSES, Meta


class CollectionState(pydantic.BaseModel):
    """State of the garbage collection. With several Coreapps there is one such object per Coreapp, under its name."""

    model_config = pydantic.ConfigDict(extra="allow")

    status: Literal["processing", "failed"] | None = None


class Collection(pydantic.BaseModel):
    """Garbage collection of one kind of data."""

    gc: CollectionState


class CollectionResponse(pydantic.BaseModel):
    """Response under `message` or `media`. The result follows as a callback."""

    services: dict[Literal["message", "media"], Collection] = pydantic.Field(
        examples=[{"message": {"gc": {"status": "processing"}}}]
    )
    meta: Meta


def describe(kind: str, state: Any) -> dict[str, Any]:
    """Return the response without `meta`."""
    return {"services": {kind: {"gc": state}}}


log = logging.getLogger(__name__)

# Seconds for which the response waits for each Coreapp to confirm the start.
_TIMEOUT = 5.0

PROCESSING, FAILED = "processing", "failed"


class Collections:
    """Garbage collections. Their results are posted to the webhook."""

    def __init__(self, coreapps: AllCoreapps) -> None:
        self._coreapps = coreapps

    async def start(self, caller: Caller, kind: str) -> Mapping[str, Any]:
        """Start a collection, and return its state: of the only Coreapp, or of each of several by name.

        Raises the errors of the Coreapp link.
        """
        coreapps = self._coreapps.of(caller.account)

        def make(n: int) -> core.CollectGarbage:
            return core.CollectGarbage(n=n, kind=kind, account=caller.account)

        if len(coreapps.coreapps()) <= 1:
            await coreapps.call_primary_repeatable(make, core.Done)
            states: dict[str, Any] = {"status": PROCESSING}
        else:
            per_coreapp = await coreapps.call_each(make, core.Done, timeout=_TIMEOUT)
            states = {
                coreapp.name: {"status": FAILED if isinstance(response, CoreappUnavailable) else PROCESSING}
                for coreapp, response in per_coreapp
                if coreapp.shards
            }
        log.info("garbage.started", extra={"username": caller.username, "kind": kind})
        return states


router = APIRouter(tags=["services"], responses=RESPONSES)
Service = Annotated[Collections, part(Collections)]


@router.put("/v1/services/message/gc", summary="Delete old messages", response_model=CollectionResponse)
async def collect_messages(caller: Administrator, collections: Service) -> Response:
    return responses.success(describe("message", await collections.start(caller, "message")))


@router.put("/v1/services/media/gc", summary="Delete expired media", response_model=CollectionResponse)
async def collect_media(caller: Administrator, collections: Service) -> Response:
    return responses.success(describe("media", await collections.start(caller, "media")))
