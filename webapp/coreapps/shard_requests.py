"""Requests to the owners of shards, repeated while their outcome is unknown."""

from __future__ import annotations

import asyncio
import contextlib

from prometheus_client import Counter

from tidings.observability.hot_metrics import HotHistogram
from tidings.wire import core
from tidings.wire.codes import NOT_PRIMARY_COREAPP
from webapp.coreapps.connections import CoreappConnections, ShardTarget
from webapp.coreapps.interfaces import Make, Response
from webapp.http.errors import (
    CoreappRefused,
    CoreappUnavailable,
    CoreappUnreachable,
    IdempotencyKeyReused,
    Overloaded,
    ResponsePending,
)

SECONDS = HotHistogram(
    "tidings_webapp_call_seconds",
    "Duration of a request to a Coreapp, including the wait for a connection",
    ["result"],
    buckets=(0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 5, 30),
)
AGAIN = Counter(
    "tidings_webapp_calls_repeated_total", "Requests to a Coreapp repeated because no response came", ["result"]
)
# Seconds between a response from a Coreapp that does not own the shard and the next attempt.
NOT_OWNER_RETRY = 0.25
# Maximum number of attempts at a request whose response is lost. It keeps a request that crashes Coreapps from reaching
# all of them.
MAX_LOST = 3
# Seconds. A request that may be repeated, and that has waited longer than `LONG_WAIT` for an owner, has only the rest
# of its time for the response, but at least `LEAST_TIMEOUT`. Messages are exempt, because a response that comes too
# late leaves their outcome unknown. Once sent, a message has the full timeout, however long it waited for an owner.
LONG_WAIT, LEAST_TIMEOUT = 0.5, 1.0


class _UnknownOutcome:
    """Outcome of a request whose response was lost. It is unknown until a repetition of the request gets a response."""

    def __init__(self, again: Make | None, *, is_safe: bool) -> None:
        """Create the state of a request, at first without a lost response.

        again: creates the request to repeat; `None` when it must not be repeated
        is_safe: whether it may be repeated any number of times, so that an unknown outcome does not matter to the
            caller
        """
        self._again = again
        self._is_safe = is_safe
        self._away: CoreappUnavailable | None = None
        self._lost = 0

    def __bool__(self) -> bool:
        return self._away is not None

    def record(self, away: CoreappUnavailable, *, lost: int = 1) -> Make:
        """Record a lost response, and return the function that creates the request to send now.

        Raises what `error` returns when the request must not be repeated, or was repeated too often.

        lost: attempts to count; 0 for a response that only leaves the outcome unknown
        """
        self._away = away
        self._lost += lost
        if self._again is None or self._lost >= MAX_LOST:
            raise self.error() from None
        return self._again

    def error(self) -> CoreappUnavailable:
        assert self._away is not None
        return CoreappUnreachable(self._away.problems[0].details) if self._is_safe else self._away


class ShardRequests:
    """Sends requests to the owners of shards.

    While an owner is unavailable, a request waits up to `owner_timeout` seconds for it. A request that was sent and
    whose response is lost may have been processed. It is sent again, within the same time, only if the caller
    allows it.
    """

    def __init__(self, connections: CoreappConnections, *, owner_timeout: float, timeout: float) -> None:
        """Create the requests.

        owner_timeout: seconds that a request waits for an owner
        timeout: seconds that a response may take
        """
        self._connections = connections
        self._owner_timeout = owner_timeout
        self._timeout = timeout

    async def call(
        self, target: ShardTarget, make: Make, expect: type[Response], again: Make | None, *, version: int = 0
    ) -> Response:
        """Send a request to the owner of a shard, and return the response.

        Raises `CoreappRefused`, `CoreappUnavailable`, `Overloaded` and `RequestTooLarge`. Only `CoreappUnavailable`
        leaves it unknown whether the request was processed. After its subclass `CoreappUnreachable` the request may be
        repeated. `ResponsePending` and `IdempotencyKeyReused` are raised for requests with an idempotency key.

        again: creates the request to send when the response to the first one was lost; `None` when it must not be
            repeated, `make` when it may be repeated any number of times
        version: as in `PrimaryCoreappOfNumber`
        """
        unknown = _UnknownOutcome(again, is_safe=again is make)
        try:
            return await self._call_until_known(target, make, expect, again, unknown=unknown, version=version)
        except Overloaded:
            # This attempt had no effect, but the outcome of an earlier one may be unknown.
            if unknown:
                raise unknown.error() from None
            raise

    async def _call_until_known(
        self,
        target: ShardTarget,
        make: Make,
        expect: type[Response],
        again: Make | None,
        *,
        unknown: _UnknownOutcome,
        version: int,
    ) -> Response:
        loop = asyncio.get_running_loop()
        started = loop.time()
        deadline = started + self._owner_timeout
        current = make
        while True:
            owner = self._connections.owner_at(target)
            peer = self._connections.peer_at(owner.address) if owner is not None else None
            if peer is None or not peer.is_ready:
                await self._wait(target, deadline, unknown)
                continue
            if current is not make and not peer.supports_repeats:
                raise unknown.error()
            if not peer.supports(version):
                raise CoreappUnreachable(f"the Coreapp at {peer.address} {core.EARLIER_RELEASE}")
            now = loop.time()
            timeout = self._timeout
            if current is not make:
                timeout = max(deadline - now, 0.001)
            elif again is not None and expect is not core.Accepted and now - started > LONG_WAIT:
                timeout = min(timeout, max(deadline - now, LEAST_TIMEOUT))
            try:
                response = await (peer.send if expect is core.Accepted else peer.call)(current, timeout)
            except CoreappUnreachable:
                # The connection was lost just before sending.
                await self._wait(target, deadline, unknown)
                continue
            except CoreappUnavailable as away:
                current = unknown.record(away)
                if loop.time() >= deadline:
                    raise unknown.error() from None
                AGAIN.labels(expect.__name__).inc()
                continue
            if type(response) is expect:
                SECONDS.labels(expect.__name__).observe(loop.time() - started)
                return response
            if isinstance(response, core.KeyTaken):
                raise ResponsePending() if response.in_progress else IdempotencyKeyReused()
            if not isinstance(response, core.Refused):
                raise CoreappUnavailable(f"the Coreapp at {peer.address} responded with {type(response).__name__}")
            refusal = CoreappRefused(response.code, response.details, retry_after=response.retry_after)
            if response.unknown and again is not None:
                current = unknown.record(CoreappUnavailable(response.details), lost=0)
            elif response.code != NOT_PRIMARY_COREAPP:
                raise refusal
            if loop.time() >= deadline:
                raise unknown.error() if unknown else refusal
            # This Coreapp does not own the shard now and has done nothing. Poll the map, then repeat the request.
            self._connections.poll()
            with contextlib.suppress(CoreappUnreachable):
                await self._connections.wait_for_change(target, loop.time() + NOT_OWNER_RETRY)

    async def _wait(self, target: ShardTarget, deadline: float, unknown: _UnknownOutcome) -> None:
        """Wait for a change, as `wait_for_change` does. If a response was lost before, its error is raised instead."""
        try:
            await self._connections.wait_for_change(target, deadline)
        except CoreappUnreachable:
            if unknown:
                raise unknown.error() from None
            raise
