"""Exchange of envelopes between nodes: each goes to the node that its recipient is attached to, which responds.

The origin stores an envelope for which no response arrives in time. A node that stores an envelope for a device that is
not attached to it looks up the device's node after the commit. A node that attaches a device claims it before it reads
its mailbox. So one of the two always notices the other. Later envelopes for the same device wait until its node has
been notified.
"""

from __future__ import annotations

import asyncio
import dataclasses
import functools
import itertools
import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from operator import attrgetter

from prometheus_client import Counter, Gauge

from network.cluster import frames
from network.cluster.forwards import Forwards, PendingForward, RecentLogins, Stream, stream_of
from network.cluster.frames import Claims, FromNode
from network.cluster.location_cache import LocationCache, holder
from network.cluster.membership import NodeMembership
from network.cluster.outbox import Outbox
from network.cluster.presence import Presence
from network.cluster.relocation_check import RelocationCheck
from network.routing import admission
from network.routing.delivery_queue import EnvelopeOrigin
from network.routing.shared_router import SharedRouter
from tidings.aio.batcher import BatcherFull
from tidings.storage.network.mailbox import Envelope
from tidings.wire import device

log = logging.getLogger(__name__)

FORWARDED = Counter("tidings_network_forwarded_total", "Envelopes forwarded to other nodes, by result", ["to"])
WAITING = Gauge("tidings_network_forwards_waiting", "Envelopes forwarded to other nodes and not yet answered")
ANSWERED, LATE, MOVED, UNSENT = (FORWARDED.labels(word) for word in ("answered", "late", "moved", "unsent"))

# Seconds that another node has to respond, in addition to those for which it may wait for its device.
RESPONSE_SECONDS = 2.0
# Nodes that an envelope is given to, one after the other, before it is stored.
TRIES = 3


class NodeOrigin:
    """Another node as the origin of envelopes; responses name its numbers.

    Everything accepted in one event-loop iteration is confirmed in one frame.
    """

    def __init__(self, put: Callable[[FromNode], object]) -> None:
        self._put = put
        self._accepted: list[int] = []

    def accepted(self, n: int) -> None:
        """Confirm an envelope."""
        if not self._accepted:
            asyncio.get_running_loop().call_soon(self._flush)
        self._accepted.append(n)

    def _flush(self) -> None:
        self._put(frames.Accepted(self._accepted))
        self._accepted = []

    def refused(self, n: int, reason: str, detail: str = "", retry_after: int = 0) -> None:
        """Refuse an envelope."""
        self._put(frames.Refused(n, reason, detail, retry_after))

    def superseded(self, n: int) -> None:
        """Notify the node that no response to this number will follow."""
        self._put(frames.Superseded(n))


@dataclasses.dataclass(slots=True, eq=False)
class Exchange:
    """Forwarding of envelopes to and from other nodes, for the router.

    At most `Limits.undecided` envelopes wait for responses of other nodes, and as many for the location of their
    recipients; one more is refused as `overloaded`.
    """

    router: SharedRouter
    membership: NodeMembership
    presence: Presence
    outbox: Outbox
    # Notifies other nodes of envelopes that are stored here.
    relocation_check: RelocationCheck = dataclasses.field(init=False)
    # Seconds until an envelope that waits for another node is stored here.
    _store_after: float = dataclasses.field(init=False)
    _forwards: Forwards = dataclasses.field(init=False)
    _locations: LocationCache = dataclasses.field(init=False)
    # Logins at this node, of devices as senders and as recipients.
    _recent_senders: RecentLogins = dataclasses.field(init=False)
    _recent_recipients: RecentLogins = dataclasses.field(init=False)
    _ranks: Iterator[int] = dataclasses.field(default_factory=lambda: itertools.count(1))
    _locating: dict[str, list[PendingForward]] = dataclasses.field(default_factory=dict)
    _locating_count: int = 0
    _origins: dict[str, NodeOrigin] = dataclasses.field(default_factory=dict)
    # Nodes that did not respond in time, until their next frame.
    _silent: set[str] = dataclasses.field(default_factory=set)
    _idle: asyncio.Event = dataclasses.field(default_factory=asyncio.Event)

    def __post_init__(self) -> None:
        clock, limits = self.router.clock, self.router.limits
        self._store_after = limits.store_after + RESPONSE_SECONDS
        self._forwards = Forwards(limits)
        self._locations = LocationCache(clock)
        self._recent_senders = RecentLogins(clock, attrgetter("sender"))
        self._recent_recipients = RecentLogins(clock, attrgetter("to"))
        self.relocation_check = RelocationCheck(
            self.membership,
            self.presence,
            self.outbox,
            locations=self._locations,
            clock=clock,
            max_wait=self._store_after,
            read_here=self.router.read_mailbox,
        )

    # Calls by the router.

    def take_over(self, origin: EnvelopeOrigin, frame: device.Send, *, here: bool, storing: bool) -> bool:
        """Take over an envelope that another node delivers or may deliver. Returns False if this node is to deliver it.

        here: whether its recipient is attached to this node.
        storing: whether an envelope for its recipient is being stored on this node.
        """
        if frame.to in self._locating:
            # Queued behind earlier envelopes for the same recipient.
            self._queue_for_location(self._new_forward(origin, frame))
            return True
        if here:
            self._prepare_here(frame)
            return False
        if self._forwards.redirect_repeat(origin, frame):
            return True
        forward = self._new_forward(origin, frame)
        if not self.membership.is_redis_up:
            self._store_with_older(forward)
            return True
        claims = self._locations.get(frame.to)
        if claims is None:
            self._queue_for_location(forward)
            return True
        node = self._choose(claims, frame)
        if not node:
            self._store_with_older(forward)
        elif storing or self.relocation_check.has_unannounced(frame.to):
            self._queue_for_location(forward, storing=storing)
        else:
            self._forward_with_older(forward, node)
        return True

    def _new_forward(self, origin: EnvelopeOrigin, frame: device.Send) -> PendingForward:
        return PendingForward(frame, origin, next(self._ranks))

    def attached(self, number: str) -> None:
        """Record that a device, or a partition of it, attached to this node."""
        self._recent_senders.note(number)
        self._recent_recipients.note(number)

    def stored(self, number: str, rows: Iterable[Envelope] = ()) -> None:
        """Announce envelopes stored for a device that is not attached here.

        rows: the envelopes; empty when they are not known.
        """
        found = tuple(rows)
        # Other nodes may have stored older envelopes of a recently attached sender, so the device's node reads the
        # whole mailbox instead of these rows.
        self.relocation_check.stored(
            number, () if any(self._recent_senders.has(row.sender) for row in found) else found
        )

    def must_read_before_copy(self, sender: str, number: str) -> bool:
        """Return whether the mailbox must be read before this sender's next group copy to a device attached here; True
        only for the first copy."""
        if not (self._recent_senders.has(sender) or self._recent_recipients.has(number)):
            return False
        return self._take_first(Stream(sender, number, device.GROUP_HASH_SLOT))

    def _take_first(self, stream: Stream) -> bool:
        """Return whether the mailbox must be read before the next envelope of this stream, whose recipient is here."""
        is_first = self._recent_recipients.take_first(stream)
        return self._recent_senders.take_first(stream) or is_first

    def detached(self, number: str, part: device.Partition) -> None:
        """Release the claim of a partition that detached, unless it is attached again by the end of this event-loop
        iteration.
        """
        asyncio.get_running_loop().call_soon(self._release, number, part)

    def _release(self, number: str, part: device.Partition) -> None:
        if not self.router.is_attached(number, part.partition):
            self.presence.release((number, part.partition))

    # Envelopes of senders on this node.

    def _choose(self, claims: Claims, frame: device.Send) -> str:
        """Return the node that delivers the envelope, empty when this node must handle it."""
        node = holder(claims, device.hash_slot_of(frame.sender, frame.kind, frame.group))
        unreachable = node == self.membership.me or node in self._silent or self.relocation_check.must_read_all(node)
        return "" if unreachable else node

    # Before an envelope is forwarded or delivered, the older ones of its stream are sent the same way. They were given
    # to a node that may deliver them later or never. The device drops envelopes that are delivered twice because of
    # this.

    def _prepare_here(self, frame: device.Send) -> None:
        """Deliver the older envelopes of the stream before one that is delivered on this node."""
        for older in self._forwards.take_older(frame):
            MOVED.inc()
            self.router.send_here(older.origin, older.frame)
        is_recent = self._recent_senders.has(frame.sender) or self._recent_recipients.has(frame.to)
        if is_recent and self._take_first(stream_of(frame)):
            self.router.require_read_before(frame)

    def _forward_with_older(self, forward: PendingForward, node: str) -> None:
        for older in self._forwards.take_older(forward.frame, forward.rank, not_at=node):
            MOVED.inc()
            self._post(older, node)
        self._post(forward, node)

    def _post(self, forward: PendingForward, node: str) -> None:
        frame = forward.frame
        if not self._forwards.has_room(frame):
            admission.refuse(forward.origin, frame, device.OVERLOADED)
            return
        forward.node, forward.due = node, self.router.clock.monotonic() + self._store_after
        forward.tries += 1
        n = self._forwards.add(forward)
        read_first = self._recent_senders.has(frame.sender) and self._recent_senders.take_first(stream_of(frame))
        if not self.outbox.put(node, frames.Forward(n, frame, read_first)):
            self._not_posted(n, node)

    def _not_posted(self, n: int, node: str) -> None:
        forward = self._forwards.take(n, node)
        if forward is not None:
            UNSENT.inc()
            self._recent_senders.put_back(stream_of(forward.frame))
            self._store_with_older(forward)

    def _store_with_older(self, forward: PendingForward) -> None:
        for older in self._forwards.take_older(forward.frame, forward.rank):
            LATE.inc()
            self._store_one(older)
        self._store_one(forward)

    def _store_one(self, forward: PendingForward) -> None:
        self.router.send_here(self.relocation_check.begin_storing(forward.frame.to, forward.origin), forward.frame)

    def _queue_for_location(self, forward: PendingForward, *, storing: bool = False) -> None:
        origin, frame = forward.origin, forward.frame
        if self._locating_count >= self.router.limits.undecided:
            admission.refuse(origin, frame, device.OVERLOADED)
            return
        waiting = self._locating.get(frame.to)
        if waiting is None:
            try:
                self._look_up(frame.to, storing=storing)
            except BatcherFull:
                admission.refuse(origin, frame, device.OVERLOADED)
                return
            waiting = self._locating[frame.to] = []
        waiting.append(forward)
        self._locating_count += 1

    def _look_up(self, number: str, *, storing: bool = False) -> None:
        """Start to locate a recipient. Raises `BatcherFull`."""
        if storing or self.relocation_check.has_unannounced(number):
            self.relocation_check.when_announced(number).add_done_callback(functools.partial(self._announced, number))
        else:
            self.presence.find(number).add_done_callback(functools.partial(self._claims_found, number))

    def _announced(self, number: str, found: asyncio.Future[bool]) -> None:
        claims = self._locations.get(number)
        if not found.cancelled() and not found.result():
            # Store these envelopes too, behind the one that is being stored.
            self._process_located(number, {})
        elif claims is not None and not self.relocation_check.has_unannounced(number):
            self._process_located(number, claims)
        else:
            try:
                self._look_up(number)
            except BatcherFull:
                self._process_located(number, {})

    def _claims_found(self, number: str, found: asyncio.Future[Claims]) -> None:
        claims: Claims = {}
        if not found.cancelled() and found.exception() is None:
            claims = found.result()
            self._locations.learn(number, claims)
        if claims and self.relocation_check.has_unannounced(number):
            self._look_up(number)
        else:
            self._process_located(number, claims)

    def _process_located(self, number: str, claims: Claims) -> None:
        """Process the envelopes that waited for the recipient's location, in order."""
        waiting = self._locating.pop(number, ())
        self._locating_count -= len(waiting)
        for forward in waiting:
            origin, frame = forward.origin, forward.frame
            node = self._choose(claims, frame)
            if self.router.is_here(frame):
                self._prepare_here(frame)
                self.router.send_here(origin, frame)
            elif not node or forward.tries >= TRIES:
                self._store_with_older(forward)
            elif not self._forwards.redirect_repeat(origin, frame):
                self._forward_with_older(forward, node)

    # Frames from other nodes.

    def received(self, source: str, frame: FromNode) -> bool:
        """Handle one frame; return whether it belongs to the exchange."""
        self._silent.discard(source)
        if isinstance(frame, frames.Forward):
            frame.send.n = frame.n
            self._deliver(source, frame.send, read_first=frame.read_first)
        elif isinstance(frame, frames.Accepted):
            for n in frame.n:
                self._respond(source, n, lambda forward: forward.origin.accepted(forward.n))
        elif isinstance(frame, frames.Refused):
            refusal = frame.reason, frame.detail, frame.retry_after
            self._respond(source, frame.n, lambda forward: forward.origin.refused(forward.n, *refusal))
        elif isinstance(frame, frames.Superseded):
            self._respond(source, frame.n, lambda forward: forward.origin.superseded(forward.n))
        elif isinstance(frame, frames.Moved):
            self._moved(source, frame.n)
        elif isinstance(frame, frames.Stored):
            # During the repetition of a claim other nodes may have stored envelopes that they could announce to no
            # node.
            self.router.read_mailbox(frame.number, () if self.presence.is_repeating(frame.number) else frame.rows)
        else:
            return False
        return True

    def _deliver(self, source: str, frame: device.Send, *, read_first: bool) -> None:
        origin = self._origins.get(source)
        if origin is None:
            origin = self._origins[source] = NodeOrigin(functools.partial(self.outbox.put, source))
        if self.presence.is_claimed_here(frame.to, device.hash_slot_of(frame.sender, frame.kind, frame.group)):
            is_first = self._recent_recipients.has(frame.to) and self._recent_recipients.take_first(stream_of(frame))
            if read_first or is_first or self.presence.is_repeating(frame.to):
                self.router.require_read_before(frame)
            self.router.send_here(origin, frame)
        elif self.router.is_storing(frame) or self.relocation_check.has_unannounced(frame.to):
            # Envelopes in flight when the device detached come before this one, wherever the device is now.
            report = functools.partial(self._report_moved, source, frame.n)
            self.relocation_check.when_announced(frame.to).add_done_callback(report)
        else:
            self._report_moved(source, frame.n)

    def _report_moved(self, source: str, n: int, _: object = None) -> None:
        self.outbox.put(source, frames.Moved(n))

    def _respond(self, source: str, n: int, respond: Callable[[PendingForward], None]) -> None:
        forward = self._forwards.take(n, source)
        if forward is not None:
            ANSWERED.inc()
            respond(forward)

    def _moved(self, source: str, n: int) -> None:
        forward = self._forwards.take(n, source)
        if forward is not None:
            self._locations.evict(forward.frame.to)
            self._recent_senders.put_back(stream_of(forward.frame))
            # Together with the younger ones of its stream; otherwise they would stay behind later envelopes until they
            # move, too.
            for each in (forward, *self._forwards.take_younger(forward)):
                MOVED.inc()
                self._queue_for_location(each)

    # Timeouts and changes of membership.

    def sweep(self) -> None:
        """Store envelopes for which no response arrived in time. Call it about ten times a second."""
        late = list(self._forwards.take_late(self.router.clock.monotonic()))
        self._silent.update(forward.node for forward in late)
        # Together with the younger envelopes of their streams.
        behind = [younger for forward in late for younger in self._forwards.take_younger(forward)]
        for forward in sorted((*late, *behind), key=_rank_of):
            LATE.inc()
            self._store_with_older(forward)
        self.relocation_check.sweep()
        self._recent_senders.sweep()
        self._recent_recipients.sweep()
        WAITING.set(len(self._forwards))
        if not self.waiting:
            self._idle.set()

    def is_wanted(self, node: str, frame: FromNode) -> bool:
        """Return whether a frame must still be sent: not an envelope that has been stored here since."""
        return not isinstance(frame, frames.Forward) or self._forwards.is_waiting(frame.n, node)

    def unsent(self, node: str, some: Sequence[FromNode]) -> None:
        """Store envelopes that another node will not receive, and those queued behind them."""
        waiting = self.outbox.waiting(node)
        for frame in itertools.chain(some, waiting):
            if isinstance(frame, frames.Forward):
                self._not_posted(frame.n, node)
        if any(isinstance(frame, frames.Stored | frames.ReadAll) for frame in some):
            self.relocation_check.unsent(node)
            for frame in waiting:
                if isinstance(frame, frames.Stored):
                    # These rows would overtake those that the lost notices are about.
                    frame.rows = []

    def changed(self, gone: frozenset[str]) -> None:
        """Handle a change of membership; store the envelopes that the departed nodes had."""
        self._locations.clear()
        self.outbox.drop(gone)
        self._silent -= gone
        for node in gone:
            self._origins.pop(node, None)
        self.relocation_check.nodes_left(gone)
        for forward in sorted(self._forwards.take_of(gone), key=_rank_of):
            LATE.inc()
            self._store_with_older(forward)

    def evict_departed(self) -> None:
        """Drop what is kept for nodes that are not members. Call it about once a minute."""
        live = self.membership.nodes
        self.outbox.evict(live)
        self._silent &= live
        self.relocation_check.evict(live)
        for node in self._origins.keys() - live:
            del self._origins[node]

    @property
    def waiting(self) -> int:
        """Return the number of envelopes that wait for another node's response or for their recipient's location."""
        return len(self._forwards) + self._locating_count

    async def wait(self) -> None:
        """Wait until no envelope is waiting."""
        self._idle.clear()
        if self.waiting:
            await self._idle.wait()

    def close(self) -> None:
        """Store all waiting envelopes."""
        for forward in sorted(self._forwards.take_all(), key=_rank_of):
            self._store_with_older(forward)
        for number in list(self._locating):
            self._process_located(number, {})


def _rank_of(forward: PendingForward) -> int:
    return forward.rank
