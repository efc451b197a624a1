"""Calls of the Cloud API that make one change, in a bounded time, with what is known about it when it fails."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import enum
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeVar

import msgspec

from coreapp.context import ShardContext
from coreapp.errors import RequestRefused
from coreapp.graph_api.client import CloudResponse, GraphClient, NotPosted, ResponseMissing
from coreapp.upstream import call_errors
from coreapp.upstream.templates import PAGE_BYTES, MirrorFailed, decode
from coreapp.upstream_access import UpstreamAccess
from tidings.storage import outages
from tidings.storage.business.shards import LeaseLost
from tidings.storage.database import Connection
from tidings.wire import codes

CHANGE_SECONDS = 6.0  # seconds for all calls of a change, so that v1 responds within 9 s
COMMIT_SECONDS = 2.0  # seconds for the commit of a change while the database is unreachable
RETRY_SECONDS = 5  # `Retry-After` of a change that may be repeated

NOT_OPENED = "the number's access token for the Cloud API cannot be opened: run `tidings doctor`"

Work = Callable[[Connection], Awaitable[object]]
_Object = TypeVar("_Object")


class ChangeEffect(enum.Enum):
    """Known effect of a change at the Cloud API."""

    NONE = "nothing was changed"
    UNKNOWN = "unknown"
    MADE = "made"


class CloudSuccess(msgspec.Struct):
    """Response to a change that returns no object."""

    success: bool


class ChangeUnfinished(RequestRefused):
    """No valid response came in time, or the change could not be committed here. `details` names its effect."""

    def __init__(self, details: str) -> None:
        super().__init__(codes.NOT_READY, details, RETRY_SECONDS)


@dataclasses.dataclass(eq=False, repr=False)
class ChangeCalls:
    """Calls of one change. `effect` is what is known about it."""

    client: GraphClient
    access: UpstreamAccess
    words: Mapping[ChangeEffect, str]  # `UNKNOWN` and `MADE`, for the caller
    effect: ChangeEffect = ChangeEffect.NONE

    @property
    def known(self) -> str:
        """Return what is known about the change, in words."""
        return self.words.get(self.effect, self.effect.value)

    async def fetch(self, path: str, kind: type[Any]) -> Any:
        """Get an object. Raises `RequestRefused`, `MirrorFailed`, `NotPosted` and `ResponseMissing`."""
        return _object(await self.client.get(self.access.url(path), self.access.token, limit=PAGE_BYTES), kind)

    async def prepare(self, call: Awaitable[CloudResponse], kind: type[_Object]) -> _Object:
        """Return the object that a call without an effect on the change returns. Raises the errors of `fetch`."""
        found: _Object = _object(await call, kind)
        return found

    async def post(self, path: str, body: bytes, kind: type[Any]) -> Any:
        """Make the change by a post. Raises the errors of `fetch`."""
        return await self._make(self.client.post(self.access.url(path), self.access.token, body), kind)

    async def delete(self, path: str) -> None:
        """Make the change by a deletion. Raises the errors of `fetch`."""
        await self._make(self.client.delete(self.access.url(path), self.access.token), CloudSuccess)

    async def complete(
        self, context: ShardContext, make: Callable[[], Awaitable[Work | None]], *, lock: asyncio.Lock | None = None
    ) -> None:
        """Make the change, and commit the same here. Raises `RequestRefused`, also as `ChangeUnfinished`.

        make: makes the change at the Cloud API and returns the work to commit; None for none
        lock: held during both; None for none
        """
        async with contextlib.AsyncExitStack() as held:
            await self._complete(context, make, held, lock)

    async def _complete(
        self,
        context: ShardContext,
        make: Callable[[], Awaitable[Work | None]],
        held: contextlib.AsyncExitStack,
        lock: asyncio.Lock | None,
    ) -> None:
        try:
            async with asyncio.timeout(CHANGE_SECONDS):
                if lock is not None:
                    await held.enter_async_context(lock)
                work = await make()
            if work is not None:
                await context.persist(work, retry_seconds=COMMIT_SECONDS)
            return
        except RequestRefused as refused:
            if self.effect is not ChangeEffect.MADE:
                raise
            reason = refused.details
        except TimeoutError:
            reason = f"the Cloud API does not respond within {CHANGE_SECONDS:g} s"
        except (NotPosted, ResponseMissing, MirrorFailed) as error:
            reason = f"the Cloud API: {error}"
        except LeaseLost:
            reason = "this Coreapp has just lost its shard"
        except Exception as error:
            if not outages.is_outage(error):
                raise
            reason = f"the database: {outages.brief(error)}"
        raise ChangeUnfinished(f"{reason}: {self.known}")

    async def _make(self, call: Awaitable[CloudResponse], kind: type[Any]) -> Any:
        self.effect = ChangeEffect.UNKNOWN
        try:
            response = await call
        except NotPosted:
            self.effect = ChangeEffect.NONE
            raise
        try:
            made = _object(response, kind)
        except RequestRefused as refused:
            if response.status >= 500:
                raise RequestRefused(refused.code, f"{refused.details}: {self.known}", refused.retry_after) from None
            self.effect = ChangeEffect.NONE
            raise
        if isinstance(made, CloudSuccess) and not made.success:
            self.effect = ChangeEffect.NONE
            raise RequestRefused(codes.GENERIC_ERROR, "the Cloud API refuses without a reason")
        self.effect = ChangeEffect.MADE
        return made


def _object(response: CloudResponse, kind: type[Any]) -> Any:
    """Return the object in a response. Raises `RequestRefused` for an error of the Cloud API, else `MirrorFailed`."""
    if response.status != 200:
        refused = call_errors.find_refusal(response)
        raise refused or MirrorFailed(f"HTTP {response.status} without an error of the Cloud API")
    return decode(response, kind)
