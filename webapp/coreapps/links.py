"""Links to the Coreapps: one connection per shard owner in the shard map, and one per standby."""

from __future__ import annotations

import asyncio
import collections
import contextlib
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from prometheus_client import Counter, Gauge, Histogram

from tidings.aio.service import Wakeup
from tidings.net.exposure import ON_THIS_MACHINE, LinkCalls
from tidings.storage.business import shard_blocks
from tidings.storage.business.nodes import NodeRecord
from tidings.storage.business.shards import Owner
from tidings.wire import addresses, core
from tidings.wire.codes import NOT_PRIMARY_COREAPP
from webapp.coreapps.interfaces import Make, Response
from webapp.coreapps.peer import STALL, Peer
from webapp.coreapps.shard_map import Coreapp, FixedShardMap, ShardMap, list_coreapps
from webapp.http.errors import (
    CoreappAway,
    CoreappRefused,
    CoreappUnreachable,
    IdempotencyKeyReused,
    Overloaded,
    ResponsePending,
)

log = logging.getLogger(__name__)

SECONDS = Histogram(
    "tidings_webapp_question_seconds",
    "Duration of a request to a Coreapp, including the wait for a connection",
    ["answer"],
    buckets=(0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 5, 30),
)
AGAIN = Counter(
    "tidings_webapp_questions_repeated_total", "Requests to a Coreapp repeated because no answer came", ["answer"]
)
SHARDS = Gauge(
    "tidings_webapp_shards", "Shards, by whether this Webapp is connected to a Coreapp that owns them", ["state"]
)

# Seconds between two polls of the shard map: while every owner is connected, and while one is not.
POLL_CONNECTED, POLL_DISCONNECTED = 1.0, 0.25
# Seconds between a response from a Coreapp that does not own the shard and the next attempt.
NOT_OWNER_RETRY = 0.25
# Requests that may wait for a Coreapp to return. A further one is refused with `Overloaded`.
MAX_WAITING = 5_000
# Maximum number of attempts at a request whose response is lost. It keeps a request that crashes Coreapps from reaching
# all of them.
MAX_LOST = 3
# Seconds. A request that may be repeated, and that has waited longer than `LONG_WAIT` for an owner, has only the rest
# of its time for the response, but at least `LEAST_TIMEOUT`. Messages are exempt, because a response that comes too
# late leaves their outcome unknown. Once sent, a message has the full timeout, however long it waited for an owner.
LONG_WAIT, LEAST_TIMEOUT = 0.5, 1.0
# Close grace period, in seconds: time for the remaining responses of a Coreapp after others own its shards.
CLOSE_GRACE = 2.0


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
        self._away: CoreappAway | None = None
        self._lost = 0

    def __bool__(self) -> bool:
        return self._away is not None

    def arises(self, away: CoreappAway, *, lost: int = 1) -> Make:
        """Record a lost response, and return the function that creates the request to send now.

        Raises what `error` returns when the request must not be repeated, or was repeated too often.

        lost: attempts to count; 0 for a response that only leaves the outcome unknown
        """
        self._away = away
        self._lost += lost
        if self._again is None or self._lost >= MAX_LOST:
            raise self.error() from None
        return self._again

    def error(self) -> CoreappAway:
        assert self._away is not None
        return CoreappUnreachable(self._away.problems[0].details) if self._is_safe else self._away


class ShardTarget(NamedTuple):
    """Shard that a request is for."""

    block: int  # shard block of the number
    recipient: str | None = None  # whose shard it is; `None` for the number's first shard


class CoreappLinks:
    """Sends requests to the owners of shards.

    While an owner is unavailable, a request waits up to `patience` seconds for it. A request that was sent and
    whose response is lost may have been processed. It is sent again, within the same time, only if the caller
    allows it.
    """

    name = "coreapp-links"

    def __init__(
        self,
        shard_map: ShardMap,
        key: str,
        *,
        patience: float,
        timeout: float,
        stall: float = STALL,
        max_waiting: int = MAX_WAITING,
        calls: LinkCalls = ON_THIS_MACHINE,
        block_of: Callable[[str], int] = lambda account: 0,
    ) -> None:
        """Create the links.

        patience: seconds that a request waits for an owner
        timeout: seconds that a response may take
        stall: seconds without an accepted message after which messages are given up
        calls: verification of the Coreapps
        block_of: returns the shard block of a number
        """
        self._calls = calls
        self._block_of = block_of
        self._map = shard_map
        # Whether the map's one entry stands for all shards of all numbers.
        self._is_fixed = isinstance(shard_map, FixedShardMap)
        self._key = key
        self._patience = patience
        self._timeout = timeout
        self._stall = stall
        self._max_waiting = max_waiting
        self._owners: dict[int, Owner] = {}
        self._members: Sequence[NodeRecord] = ()
        self._coreapps: Sequence[Coreapp] = ()
        # Numbers of shards by shard block, and the requests about each number.
        self._counts: Mapping[int, int] = {}
        self._numbers: dict[int, NumberLinks] = {}
        self._peers: dict[str, Peer] = {}
        # Peers that own shards; empty while a shard has no owner.
        self._owning: Sequence[Peer] = ()
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._retired: set[asyncio.Task[None]] = set()
        self._poll = Wakeup()
        self._change = asyncio.Event()
        self._waiting = 0
        self._map_problem = ""

    async def run(self, stop: asyncio.Event) -> None:
        polling = asyncio.create_task(self._keep_polling(), name=self.name)
        stopping = asyncio.create_task(stop.wait())
        SHARDS.labels("served").set_function(self._served)
        SHARDS.labels("away").set_function(lambda: len(self._owners) - self._served())
        try:
            done, _ = await asyncio.wait([polling, stopping], return_when=asyncio.FIRST_COMPLETED)
            if polling in done:
                polling.result()
        finally:
            tasks = [polling, stopping, *self._tasks.values(), *self._retired]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def run_once(self) -> None:
        """Read the shard map and connect to the Coreapps in it."""
        try:
            owners, members = await self._map.owners(), await self._map.members()
        except Exception as error:
            if not self._map_problem:
                log.warning("shards.not_read", extra={"error": repr(error)[:200]})
            self._map_problem = f"the shard map cannot be read: {type(error).__name__}"
            return
        self._map_problem = ""
        before, self._coreapps = (self._owners, self._coreapps), list_coreapps(owners, members)
        self._owners = {owner.shard: owner for owner in owners}
        self._members = members
        if (self._owners, self._coreapps) == before:
            return
        self._counts = collections.Counter(shard_blocks.block_of(shard) for shard in self._owners)
        # Standbys are connected as well, so that a new owner can be used at once.
        wanted = {one.address for one in self._coreapps if one.address and (one.shards or not one.is_lost)}
        for address in wanted - self._peers.keys():
            peer = self._peers[address] = Peer(address, self._key, self._changed, stall=self._stall, calls=self._calls)
            self._tasks[address] = asyncio.create_task(peer.run(), name=f"coreapp {address}")
        for address in self._peers.keys() - wanted:
            self._retire(self._peers.pop(address), self._tasks.pop(address))
        owning = {owner.address for owner in owners}
        self._owning = [self._peers[address] for address in owning] if owning <= self._peers.keys() else ()
        self._changed()

    async def call(self, recipient: str, make: Make, expect: type[Response], *, again: Make | None = None) -> Response:
        """Send a request to the owner of a recipient's shard, and return the response.

        Raises `CoreappRefused`, `CoreappAway`, `Overloaded` and `RequestTooLarge`. Only `CoreappAway` leaves it
        unknown whether the request was processed. After its subclass `CoreappUnreachable` the request may be
        repeated. `ResponsePending` and `IdempotencyKeyReused` are raised for requests with an idempotency key.

        again: creates the request to send when the response to the first one was lost; `None` when it must not be
            repeated
        """
        return await self.ask(ShardTarget(0, recipient), make, expect, again)

    async def call_primary(self, make: Make, expect: type[Response], *, again: Make | None = None) -> Response:
        """Send a request to the owner of the first shard, for data that belongs to no other shard.

        Raises the errors of `call`.
        """
        return await self.ask(ShardTarget(0), make, expect, again)

    async def call_repeatable(self, recipient: str, make: Make, expect: type[Response]) -> Response:
        """Send a request that may be repeated any number of times to the owner of a recipient's shard.

        Raises the errors of `call`.
        """
        return await self.ask(ShardTarget(0, recipient), make, expect, make)

    async def call_primary_repeatable(self, make: Make, expect: type[Response]) -> Response:
        """Send a request that may be repeated any number of times to the owner of the first shard.

        Raises the errors of `call`.
        """
        return await self.ask(ShardTarget(0), make, expect, make)

    async def call_all(self, make: Make, expect: type[Response], *, timeout: float) -> list[Response | CoreappAway]:
        """Send a request to each owner that is connected now. Those that do not respond return `CoreappAway`.

        Shards without a connected owner count as one owner that does not respond.
        """
        return await self.ask_owners(self.coreapps(), list(self._owners.values()), make, expect, timeout=timeout)

    async def call_each(
        self, make: Make, expect: type[Response], *, timeout: float
    ) -> list[tuple[Coreapp, Response | CoreappAway]]:
        """Send a request as `call_all` does, also to standby and lost Coreapps.

        Returns each Coreapp with its response.
        """
        return await self.ask_each(self.coreapps(), make, expect, timeout=timeout)

    def of(self, account: str) -> NumberLinks:
        """Return the requests about one number."""
        block = self._block_of(account)
        found = self._numbers.get(block)
        if found is None:
            found = self._numbers[block] = NumberLinks(self, block)
        return found

    async def ask_owners(
        self,
        coreapps: Sequence[Coreapp],
        owners: Sequence[Owner],
        make: Make,
        expect: type[Response],
        *,
        timeout: float,
    ) -> list[Response | CoreappAway]:
        """Send a request to those of the Coreapps that own shards, as `call_all` does.

        owners: owners of the shards that the request is about
        """
        found = await self.ask_each(coreapps, make, expect, timeout=timeout)
        answers = [answer for coreapp, answer in found if coreapp.shards]
        is_listed = any(not coreapp.address for coreapp, _ in found)
        if not is_listed and not all(owner.address for owner in owners):
            answers.append(CoreappUnreachable("no Coreapp owns the shard"))
        return answers

    async def ask_each(
        self, coreapps: Sequence[Coreapp], make: Make, expect: type[Response], *, timeout: float
    ) -> list[tuple[Coreapp, Response | CoreappAway]]:
        """Send a request to each of these Coreapps. Returns each with its response."""
        found = await asyncio.gather(*(self._call_one(one.address, make, expect, timeout) for one in coreapps))
        return list(zip(coreapps, found, strict=True))

    def coreapps(self) -> Sequence[Coreapp]:
        """Return the Coreapps that own a shard, stand by or are lost, sorted by address."""
        return self._coreapps

    def unreached(self) -> Mapping[str, float]:
        """Return the seconds since the first failed call, by the address of each live Coreapp that is not reached."""
        live = (one for one in self._coreapps if one.node and not one.is_lost)
        peers = {one.address: self._peers.get(one.address) for one in live}
        return {address: peer.unreached for address, peer in peers.items() if peer is not None and peer.unreached > 0}

    def is_overloaded(self, delay: float) -> bool:
        """Return whether every shard owner is too overloaded to accept a message that is sent in `delay` seconds.

        Standbys never receive messages.
        """
        return bool(self._owning) and all(peer.is_overloaded(delay) for peer in self._owning)

    @property
    def has_shards(self) -> bool:
        """Return whether the first number has several shards."""
        return self.has_shards_of(0)

    @property
    def has_contacts_by_shard(self) -> bool:
        """Return whether contacts are requested from the shard of each.

        False while an owner is not connected or has an earlier release.
        """
        return self.has_contacts_by_shard_of(0)

    def shard_of(self, recipient: str) -> int:
        """Return the shard of a recipient of the first number, according to the last known shard map."""
        return self.shard_at(ShardTarget(0, recipient))

    def owner(self, recipient: str | None) -> Owner | None:
        """Return the owner of a shard of the first number: a recipient's, or the first one for `None`.

        Returns `None` when it is unknown.
        """
        return self.owner_at(ShardTarget(0, recipient))

    def has_shards_of(self, block: int) -> bool:
        """Return whether a number has several shards."""
        return self._counts.get(block, 0) > 1

    def has_contacts_by_shard_of(self, block: int) -> bool:
        """Return the same as `has_contacts_by_shard`, for any number."""
        is_divided = self.has_shards_of(block) and bool(self._owning)
        return is_divided and all(peer.knows_its_contacts for peer in self._owning)

    def shard_at(self, target: ShardTarget) -> int:
        """Return the shard that a request is for, according to the last known shard map."""
        first = shard_blocks.first_shard(target.block)
        if not target.recipient:
            return first
        return first + addresses.shard_of(target.recipient, self._counts.get(target.block, 1))

    def owner_at(self, target: ShardTarget) -> Owner | None:
        """Return the owner of the shard that a request is for; `None` when it is unknown."""
        return self._owners.get(0 if self._is_fixed else self.shard_at(target))

    def owners_of(self, block: int) -> Sequence[Owner]:
        """Return the owners of a number's shards."""
        if self._is_fixed:
            return list(self._owners.values())
        return [owner for shard, owner in self._owners.items() if shard_blocks.block_of(shard) == block]

    def coreapps_of(self, block: int) -> Sequence[Coreapp]:
        """Return the same as `coreapps`, with the shards of one number only."""
        if len(self._counts) <= 1:
            return self._coreapps
        return list_coreapps(self.owners_of(block), self._members)

    async def _call_one(
        self, address: str, make: Make, expect: type[Response], timeout: float
    ) -> Response | CoreappAway:
        peer = self._peers.get(address)
        if peer is None or not peer.is_ready:
            return CoreappUnreachable(f"the Coreapp at {address} cannot be reached")
        try:
            answer = await peer.call(make, timeout)
        except CoreappAway as away:
            return away
        return answer if isinstance(answer, expect) else CoreappAway(f"the Coreapp at {address} sent an invalid answer")

    async def ask(
        self, target: ShardTarget, make: Make, expect: type[Response], again: Make | None, *, version: int = 0
    ) -> Response:
        """Send a request about any number, as `call` does.

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
        deadline = started + self._patience
        question = make
        while True:
            owner = self.owner_at(target)
            peer = self._peers.get(owner.address) if owner is not None else None
            if peer is None or not peer.is_ready:
                await self._wait(target, deadline, unknown)
                continue
            if question is not make and not peer.knows_repeats:
                raise unknown.error()
            if not peer.knows(version):
                raise CoreappUnreachable(f"the Coreapp at {peer.address} {core.EARLIER_RELEASE}")
            now = loop.time()
            timeout = self._timeout
            if question is not make:
                timeout = max(deadline - now, 0.001)
            elif again is not None and expect is not core.Accepted and now - started > LONG_WAIT:
                timeout = min(timeout, max(deadline - now, LEAST_TIMEOUT))
            try:
                answer = await (peer.send if expect is core.Accepted else peer.call)(question, timeout)
            except CoreappUnreachable:
                # The connection was lost just before sending.
                await self._wait(target, deadline, unknown)
                continue
            except CoreappAway as away:
                question = unknown.arises(away)
                if loop.time() >= deadline:
                    raise unknown.error() from None
                AGAIN.labels(expect.__name__).inc()
                continue
            if type(answer) is expect:
                SECONDS.labels(expect.__name__).observe(loop.time() - started)
                return answer
            if isinstance(answer, core.KeyTaken):
                raise ResponsePending() if answer.in_progress else IdempotencyKeyReused()
            if not isinstance(answer, core.Refused):
                raise CoreappAway(f"the Coreapp at {peer.address} answered with {type(answer).__name__}")
            refusal = CoreappRefused(answer.code, answer.details, retry_after=answer.retry_after)
            if answer.unknown and again is not None:
                question = unknown.arises(CoreappAway(answer.details), lost=0)
            elif answer.code != NOT_PRIMARY_COREAPP:
                raise refusal
            if loop.time() >= deadline:
                raise unknown.error() if unknown else refusal
            # This Coreapp does not own the shard now and has done nothing. Poll the map, then repeat the request.
            self._poll.wake()
            with contextlib.suppress(CoreappUnreachable):
                await self._wait_for_change(target, loop.time() + NOT_OWNER_RETRY)

    async def _wait(self, target: ShardTarget, deadline: float, unknown: _UnknownOutcome) -> None:
        """Wait for a change, as `_wait_for_change` does. If a response was lost before, its error is raised instead."""
        try:
            await self._wait_for_change(target, deadline)
        except CoreappUnreachable:
            if unknown:
                raise unknown.error() from None
            raise

    async def _wait_for_change(self, target: ShardTarget, deadline: float) -> None:
        if self._waiting >= self._max_waiting:
            raise Overloaded("too many requests wait for a Coreapp")
        self._waiting += 1
        try:
            async with asyncio.timeout_at(deadline):
                await self._change.wait()
        except TimeoutError:
            raise CoreappUnreachable(self._describe(target)) from None
        finally:
            self._waiting -= 1

    def _describe(self, target: ShardTarget) -> str:
        owner = self.owner_at(target)
        if owner is None or not owner.address:
            return f"no Coreapp: {self._map_problem or 'no Coreapp owns the shard'}"
        peer = self._peers.get(owner.address)
        return f"the Coreapp at {owner.address} cannot be reached: {peer.problem if peer else 'connecting'}"

    def _retire(self, peer: Peer, task: asyncio.Task[None]) -> None:
        peer.retire()
        self._retired.add(task)
        task.add_done_callback(self._retired.discard)
        asyncio.get_running_loop().call_later(CLOSE_GRACE, task.cancel)

    def _changed(self) -> None:
        # Current waiters wake up. Later ones wait for the next change.
        self._change.set()
        self._change = asyncio.Event()
        self._poll.wake()

    async def _keep_polling(self) -> None:
        while True:
            await self.run_once()
            await self._poll.wait(POLL_CONNECTED if self._is_complete() else POLL_DISCONNECTED)

    def _is_complete(self) -> bool:
        return bool(self._owners) and self._served() == len(self._owners)

    def _served(self) -> int:
        """Return the number of shards whose owner is connected."""
        peers = [self._peers.get(owner.address) for owner in list(self._owners.values())]
        return sum(1 for peer in peers if peer is not None and peer.is_ready)


class NumberLinks:
    """Sends requests about one number to the owners of its shards."""

    def __init__(self, links: CoreappLinks, block: int) -> None:
        """Create the requests of the number with this shard block."""
        self._links = links
        self.block = block

    async def call(self, recipient: str, make: Make, expect: type[Response], *, again: Make | None = None) -> Response:
        """Send a request to the owner of a recipient's shard, as `CoreappLinks.call` does."""
        return await self._links.ask(ShardTarget(self.block, recipient), make, expect, again)

    async def call_primary(
        self, make: Make, expect: type[Response], *, again: Make | None = None, version: int = 0
    ) -> Response:
        """Send a request to the owner of the first shard, as `CoreappLinks.call_primary` does.

        version: as in `PrimaryCoreappOfNumber`
        """
        return await self._links.ask(ShardTarget(self.block), make, expect, again, version=version)

    async def call_repeatable(self, recipient: str, make: Make, expect: type[Response]) -> Response:
        """Send a request as `CoreappLinks.call_repeatable` does."""
        return await self._links.ask(ShardTarget(self.block, recipient), make, expect, make)

    async def call_primary_repeatable(self, make: Make, expect: type[Response]) -> Response:
        """Send a request as `CoreappLinks.call_primary_repeatable` does."""
        return await self._links.ask(ShardTarget(self.block), make, expect, make)

    async def call_all(self, make: Make, expect: type[Response], *, timeout: float) -> list[Response | CoreappAway]:
        """Send a request to each owner of the number's shards, as `CoreappLinks.call_all` does."""
        owners = self._links.owners_of(self.block)
        return await self._links.ask_owners(self.coreapps(), owners, make, expect, timeout=timeout)

    async def call_each(
        self, make: Make, expect: type[Response], *, timeout: float
    ) -> list[tuple[Coreapp, Response | CoreappAway]]:
        """Send a request to each Coreapp, as `CoreappLinks.call_each` does."""
        return await self._links.ask_each(self.coreapps(), make, expect, timeout=timeout)

    def coreapps(self) -> Sequence[Coreapp]:
        """Return all Coreapps, each with its shards of this number."""
        return self._links.coreapps_of(self.block)

    def unreached(self) -> Mapping[str, float]:
        """Return the same as `CoreappLinks.unreached`."""
        return self._links.unreached()

    @property
    def has_shards(self) -> bool:
        """Return whether the number has several shards."""
        return self._links.has_shards_of(self.block)

    @property
    def has_contacts_by_shard(self) -> bool:
        """Return whether contacts are requested from the shard of each."""
        return self._links.has_contacts_by_shard_of(self.block)

    def shard_of(self, recipient: str) -> int:
        """Return the number of a recipient's shard, according to the last known shard map."""
        return self._links.shard_at(ShardTarget(self.block, recipient))
