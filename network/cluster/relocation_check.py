"""Relocation check: after a commit of envelopes for devices attached to other nodes, notify these nodes.

Later envelopes for the same device must not overtake them. So no envelope is given to that node from the moment one is
to be stored until the notice of it is queued, on the same link and ahead of everything that follows.
"""

from __future__ import annotations

import asyncio
import dataclasses
import functools
from collections.abc import Callable, Iterable, Mapping, Sequence, Set

from network.cluster import frames
from network.cluster.frames import Claims
from network.cluster.location_cache import LocationCache
from network.cluster.membership import NodeMembership
from network.cluster.outbox import Outbox
from network.cluster.presence import Presence
from network.cluster.redis_client import RedisUnavailable
from network.routing.delivery_queue import EnvelopeOrigin
from tidings.aio.batcher import BatcherFull
from tidings.aio.clock import Clock
from tidings.storage.network.mailbox import Envelope

# Numbers that are located at a time after something was stored for them, and numbers that may wait for it.
LOCATED_AT_ONCE, MAX_WAITING = 1000, 100_000

# Stored rows of a number that are not all known, so that its whole mailbox has to be read.
_EVERYTHING: Sequence[Envelope] = ()


@dataclasses.dataclass(slots=True, eq=False)
class StoredOrigin:
    """Origin of an envelope that is stored on this node."""

    origin: EnvelopeOrigin
    # Called once, before the origin receives the response.
    ended: Callable[[], None]

    def accepted(self, n: int) -> None:
        self.ended()
        self.origin.accepted(n)

    def refused(self, n: int, reason: str, detail: str = "", retry_after: int = 0) -> None:
        self.ended()
        self.origin.refused(n, reason, detail, retry_after)

    def superseded(self, n: int) -> None:
        self.ended()
        self.origin.superseded(n)


@dataclasses.dataclass(slots=True, eq=False)
class RelocationCheck:
    """Numbers with envelopes stored or being stored here that the nodes of their devices have not been notified of."""

    membership: NodeMembership
    presence: Presence
    outbox: Outbox
    _: dataclasses.KW_ONLY
    locations: LocationCache
    clock: Clock
    # Seconds that an envelope waits behind one that is being stored; then it is stored, too.
    max_wait: float
    # Called to read the mailbox of a number whose device is attached to this node.
    read_here: Callable[[str], None]
    # Whether an envelope was stored whose recipient could not be located.
    has_unlocated: bool = False
    # Stored rows by number; empty when not all of them are known.
    _stored: dict[str, Sequence[Envelope]] = dataclasses.field(default_factory=dict)
    # By number, envelopes that are being stored or whose notice has not been queued.
    _unannounced: dict[str, int] = dataclasses.field(default_factory=dict)
    # By number, the future that is done when there are none left, and the monotonic seconds at which it gives up.
    _waiting: dict[str, tuple[asyncio.Future[bool], float]] = dataclasses.field(default_factory=dict)
    # Nodes that have been notified of everything stored here, or will be before this node sends them anything else.
    _notified: set[str] = dataclasses.field(default_factory=set)
    # Nodes that missed a notice: they must read all mailboxes.
    _must_read_all: set[str] = dataclasses.field(default_factory=set)
    _locating: asyncio.Task[None] | None = None

    # Stored envelopes.

    def begin_storing(self, number: str, origin: EnvelopeOrigin) -> EnvelopeOrigin:
        """Record that an envelope is to be stored; return the origin to use for its response."""
        self._add_unannounced(number)
        return StoredOrigin(origin, functools.partial(self._remove_unannounced, number))

    def stored(self, number: str, rows: Iterable[Envelope] = ()) -> None:
        """Record that envelopes were stored, and start to locate the device.

        rows: the envelopes; empty when they are not known. Their order relative to others does not matter.
        """
        earlier = self._stored.get(number)
        if not self.membership.is_redis_up or (earlier is None and len(self._stored) >= MAX_WAITING):
            self.has_unlocated = True
            return
        # With `_EVERYTHING` the whole mailbox is read anyway.
        if earlier != _EVERYTHING:
            if found := tuple(rows):
                self._stored[number] = (*(earlier or ()), *found)
            else:
                self._add_unannounced(number)
                self._stored[number] = _EVERYTHING
        if self._locating is None:
            self._locating = asyncio.get_running_loop().create_task(self._locate_stored(), name="read stored")

    # Later envelopes.

    def has_unannounced(self, number: str) -> bool:
        """Return whether an envelope for this number would overtake a stored one."""
        return number in self._unannounced

    def must_read_all(self, node: str) -> bool:
        """Return whether an envelope for any device on this node would overtake a stored one.

        A node that was absent first receives a request to read all mailboxes.
        """
        if node not in self._notified and node not in self._must_read_all and not self.has_unlocated:
            self._request_read_all([node])
        return self.has_unlocated or node in self._must_read_all

    def joined(self) -> None:
        """Record that this node has joined the cluster and has stored nothing yet."""
        self._notified = set(self.membership.nodes)

    def nodes_left(self, nodes: Iterable[str]) -> None:
        """Record that these nodes have left: on their return they have missed notices."""
        self._notified.difference_update(nodes)

    def evict(self, live: Set[str]) -> None:
        """Drop nodes other than these: a location found before a node left may have added it again."""
        self._notified &= live

    def when_announced(self, number: str) -> asyncio.Future[bool]:
        """Return a future: True when no envelope for this number would overtake another, False after waiting too long.

        Call it while `has_unannounced` is true, or while an envelope for the number is being stored.
        """
        waiting = self._waiting.get(number)
        if waiting is None:
            due = self.clock.monotonic() + self.max_wait
            waiting = self._waiting[number] = asyncio.get_running_loop().create_future(), due
        return waiting[0]

    def _add_unannounced(self, number: str) -> None:
        self._unannounced[number] = self._unannounced.get(number, 0) + 1

    def _remove_unannounced(self, number: str) -> None:
        left = self._unannounced[number] - 1
        if left:
            self._unannounced[number] = left
            return
        del self._unannounced[number]
        self._end_wait(number)

    def _end_wait(self, number: str) -> None:
        waiting = self._waiting.pop(number, None)
        if waiting is not None:
            waiting[0].set_result(True)

    # Notices to nodes.

    async def _locate_stored(self) -> None:
        try:
            while self._stored:
                numbers = list(self._stored)[:LOCATED_AT_ONCE]
                rows = {number: self._stored.pop(number) for number in numbers}
                try:
                    found = await self.presence.find_all(numbers)
                except (RedisUnavailable, BatcherFull):
                    self.has_unlocated = True
                    found = {}
                for number, claims in found.items():
                    self.locations.learn(number, claims)
                    self._notify(number, claims, rows[number])
                self._finish_located(rows)
        finally:
            self._locating = None

    def _finish_located(self, read: Mapping[str, Sequence[Envelope]]) -> None:
        for number, rows in read.items():
            if not rows:
                self._remove_unannounced(number)
            elif number not in self._unannounced:
                self._end_wait(number)

    def _notify(self, number: str, claims: Claims, rows: Sequence[Envelope]) -> None:
        for node in {claim.node for claim in claims.values()}:
            if node == self.membership.me:
                # The device attached to this node in the meantime.
                self.read_here(number)
            elif not self.outbox.put(node, frames.Stored(number, [] if self.must_read_all(node) else list(rows))):
                self.unsent(node)

    def unsent(self, node: str) -> None:
        """Record that a notice has not reached this node."""
        self._notified.discard(node)
        self._must_read_all.add(node)

    def sweep(self) -> None:
        """End waits that take too long and repeat notices that were not received. Call it about ten times a second."""
        now = self.clock.monotonic()
        while self._waiting:
            number, (waiting, due) = next(iter(self._waiting.items()))
            if due > now:
                break
            del self._waiting[number]
            waiting.set_result(False)
        if self._must_read_all and self.membership.is_redis_up:
            # Nodes that have left need no notice.
            self._must_read_all &= self.membership.nodes
            self._notified &= self.membership.nodes
            self._request_read_all(list(self._must_read_all))

    def request_read_all(self) -> None:
        """Make every other node read all mailboxes; absent nodes do so on their return, before receiving anything."""
        self._notified.clear()
        self._request_read_all([node for node in self.membership.nodes if node != self.membership.me])

    def _request_read_all(self, nodes: Iterable[str]) -> None:
        for node in nodes:
            if self.outbox.put(node, frames.ReadAll()):
                self._must_read_all.discard(node)
                self._notified.add(node)
            else:
                self.unsent(node)
