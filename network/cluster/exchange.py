"""Exchange of envelopes between nodes: each goes to the node that its recipient is attached to, which answers.

The origin stores what is not answered in time. Whoever stores an envelope for a device that is not attached to it
looks, after the commit, where that device is; whoever attaches one claims it before it reads its mailbox. So one of
both sees the other.
"""

from __future__ import annotations

import asyncio
import functools
import logging
from collections.abc import Callable, Iterable, Sequence

from prometheus_client import Counter, Gauge

from network.cluster import frames
from network.cluster.forwards import Forward, Forwards
from network.cluster.frames import Claims, FromNode
from network.cluster.membership import Membership
from network.cluster.presence import Presence
from network.cluster.server import RedisAway
from network.cluster.streams import Outbox
from network.cluster.whereabouts import Whereabouts, holder
from network.routing import admission
from network.routing.delivery_queue import Origin
from network.routing.shared_router import SharedRouter
from network.settings import Limits
from tidings.runtime.batcher import BatcherFull
from tidings.runtime.clock import Clock
from tidings.storage.database import pages
from tidings.storage.network.mailbox import Envelope
from tidings.wire import device

log = logging.getLogger(__name__)

FORWARDED = Counter("tidings_network_forwarded_total", "Envelopes given to other nodes, by what became of them", ["to"])
WAITING = Gauge("tidings_network_forwards_waiting", "Envelopes that other nodes have and have not answered")
ANSWERED, LATE, MOVED, UNSENT = (FORWARDED.labels(word) for word in ("answered", "late", "moved", "unsent"))

# Seconds that another node has to answer, beyond those for which it may wait for its device.
ANSWER_SECONDS = 2.0
# Nodes that an envelope is given to, one after the other; then it is stored.
TRIES = 3
# Numbers whose devices are looked for at a time after something was stored for them, and that may wait for it.
LOOKS, MAX_LOOKS = 1000, 100_000


class NodeOrigin:
    """Another node as the sender of envelopes: it is answered by their numbers; what is accepted in one turn of the
    loop goes into one frame."""

    def __init__(self, put: Callable[[FromNode], object]) -> None:
        self._put = put
        self._accepted: list[int] = []

    def accepted(self, n: int) -> None:
        """Say so."""
        if not self._accepted:
            asyncio.get_running_loop().call_soon(self._flush)
        self._accepted.append(n)

    def _flush(self) -> None:
        self._put(frames.Accepted(self._accepted))
        self._accepted = []

    def refused(self, n: int, reason: str, detail: str = "", retry_after: int = 0) -> None:
        """Say so."""
        self._put(frames.Refused(n, reason, detail, retry_after))

    def superseded(self, n: int) -> None:
        """Say so: the other node waits no longer."""
        self._put(frames.Superseded(n))


class Exchange:
    """Peers of the router. At most `Limits.undecided` envelopes wait for other nodes, and as many for the answer where
    their recipients are; one more is refused as `overloaded`.

    lost_track: something was stored whose recipient could not be looked for.
    """

    def __init__(
        self,
        router: SharedRouter,
        *,
        membership: Membership,
        presence: Presence,
        outbox: Outbox,
        clock: Clock,
        limits: Limits,
    ) -> None:
        self._router = router
        self._membership = membership
        self._presence = presence
        self._outbox = outbox
        self._clock = clock
        self._limits = limits
        self._patience = limits.store_after + ANSWER_SECONDS
        self._forwards = Forwards(limits)
        self._whereabouts = Whereabouts(clock)
        self._asking: dict[str, list[tuple[Origin, device.Send, int]]] = {}
        self._asked = 0
        self._origins: dict[str, NodeOrigin] = {}
        # Nodes that left something unanswered, until they say something.
        self._silent: set[str] = set()
        self._stored: dict[str, list[Envelope]] = {}
        self._looking: asyncio.Task[None] | None = None
        # Whose mailboxes are looked into in this round.
        self._beat: list[str] = []
        self._idle = asyncio.Event()
        self.lost_track = False

    # For the router.

    def takes(self, origin: Origin, frame: device.Send, *, here: bool) -> bool:
        """Is this envelope delivered by another node, or may it be?"""
        if frame.to in self._asking:
            # Behind those that came before it.
            self._ask(origin, frame)
            return True
        if here or not self._membership.in_touch:
            return False
        if self._forwards.is_repeat(origin, frame):
            return True
        claims = self._whereabouts.get(frame.to)
        if claims is None:
            self._ask(origin, frame)
            return True
        node = self._choose(claims, frame)
        if node:
            self._forward(origin, frame, node)
        return bool(node)

    def stored(self, number: str, rows: Iterable[Envelope] = ()) -> None:
        """Something was stored for a device that is not attached here."""
        if not self._membership.in_touch or (number not in self._stored and len(self._stored) >= MAX_LOOKS):
            self.lost_track = True
            return
        self._stored.setdefault(number, []).extend(rows)
        if self._looking is None:
            self._looking = asyncio.get_running_loop().create_task(self._look(), name="look")

    def detached(self, number: str, part: device.Partition) -> None:
        """That device is not attached here any more, unless it is again by the end of this turn of the loop."""
        asyncio.get_running_loop().call_soon(self._release, number, part)

    def _release(self, number: str, part: device.Partition) -> None:
        if not self._router.is_attached(number, part.partition):
            self._presence.release((number, part.partition))

    # Envelopes of this node's senders.

    def _choose(self, claims: Claims, frame: device.Send) -> str:
        """The node that delivers it, empty when that is for this one to do."""
        node = holder(claims, device.slot_of(frame.sender, frame.kind, frame.group))
        return "" if node == self._membership.me or node in self._silent else node

    def _forward(self, origin: Origin, frame: device.Send, node: str, tries: int = 1) -> None:
        if not self._forwards.has_room(frame):
            admission.refuse(origin, frame, device.OVERLOADED)
            return
        due = self._clock.monotonic() + self._patience
        n = self._forwards.add(Forward(frame, origin, node, due, tries))
        if not self._outbox.put(node, frames.Forward(n, frame)):
            UNSENT.inc()
            self._store(self._forwards.take(n, node))

    def _store(self, forward: Forward | None) -> None:
        if forward is not None:
            self._router.send_here(forward.origin, forward.frame)

    def _ask(self, origin: Origin, frame: device.Send, tries: int = 0) -> None:
        if self._asked >= self._limits.undecided:
            admission.refuse(origin, frame, device.OVERLOADED)
            return
        waiting = self._asking.get(frame.to)
        if waiting is None:
            try:
                answer = self._presence.find(frame.to)
            except BatcherFull:
                admission.refuse(origin, frame, device.OVERLOADED)
                return
            waiting = self._asking[frame.to] = []
            answer.add_done_callback(functools.partial(self._found, frame.to))
        waiting.append((origin, frame, tries))
        self._asked += 1

    def _found(self, number: str, answer: asyncio.Future[Claims]) -> None:
        waiting = self._asking.pop(number)
        self._asked -= len(waiting)
        claims: Claims = {}
        if not answer.cancelled() and answer.exception() is None:
            claims = answer.result()
            self._whereabouts.learn(number, claims)
        for origin, frame, tries in waiting:
            node = self._choose(claims, frame)
            if not node or tries >= TRIES or self._router.is_here(frame):
                self._router.send_here(origin, frame)
            elif not self._forwards.is_repeat(origin, frame):
                self._forward(origin, frame, node, tries + 1)

    # What other nodes say.

    def received(self, source: str, frame: FromNode) -> bool:
        """One frame; was it one of an exchange?"""
        self._silent.discard(source)
        if isinstance(frame, frames.Forward):
            frame.send.n = frame.n
            self._deliver(source, frame.send)
        elif isinstance(frame, frames.Accepted):
            for n in frame.n:
                self._answered(source, n, lambda forward: forward.origin.accepted(forward.n))
        elif isinstance(frame, frames.Refused):
            answer = frame.reason, frame.detail, frame.retry_after
            self._answered(source, frame.n, lambda forward: forward.origin.refused(forward.n, *answer))
        elif isinstance(frame, frames.Superseded):
            self._answered(source, frame.n, lambda forward: forward.origin.superseded(forward.n))
        elif isinstance(frame, frames.Moved):
            self._moved(source, frame.n)
        elif isinstance(frame, frames.Look):
            self._router.look_again(frame.number, frame.rows)
        else:
            return False
        return True

    def _deliver(self, source: str, frame: device.Send) -> None:
        origin = self._origins.get(source)
        if origin is None:
            origin = self._origins[source] = NodeOrigin(functools.partial(self._outbox.put, source))
        if self._presence.is_ours(frame.to, device.slot_of(frame.sender, frame.kind, frame.group)):
            self._router.send_here(origin, frame)
        else:
            self._outbox.put(source, frames.Moved(frame.n))

    def _answered(self, source: str, n: int, answer: Callable[[Forward], None]) -> None:
        forward = self._forwards.take(n, source)
        if forward is not None:
            ANSWERED.inc()
            answer(forward)

    def _moved(self, source: str, n: int) -> None:
        forward = self._forwards.take(n, source)
        if forward is not None:
            MOVED.inc()
            self._whereabouts.forget(forward.frame.to)
            self._ask(forward.origin, forward.frame, forward.tries)

    # What was stored for whoever is not here.

    async def _look(self) -> None:
        try:
            while self._stored:
                numbers = list(self._stored)[:LOOKS]
                rows = {number: self._stored.pop(number) for number in numbers}
                try:
                    found = await self._presence.find_all(numbers)
                except (RedisAway, BatcherFull):
                    self.lost_track = True
                    continue
                for number, claims in found.items():
                    self._whereabouts.learn(number, claims)
                    self._give(number, claims, rows[number])
        finally:
            self._looking = None

    def _give(self, number: str, claims: Claims, rows: Sequence[Envelope]) -> None:
        for node in {claim.node for claim in claims.values()}:
            if node == self._membership.me:
                # It came meanwhile.
                self._router.look_again(number)
            elif not self._outbox.put(node, frames.Look(number, list(rows))):
                self.lost_track = True

    # Time, and nodes that come and go.

    def sweep(self) -> None:
        """Store here what was not answered in time. Call it about ten times a second."""
        for forward in self._forwards.take_late(self._clock.monotonic()):
            LATE.inc()
            self._silent.add(forward.node)
            self._store(forward)
        WAITING.set(len(self._forwards))
        if not self.waiting:
            self._idle.set()

    def is_wanted(self, node: str, frame: FromNode) -> bool:
        """Has this one to be sent yet? An envelope that was stored here meanwhile has not."""
        return not isinstance(frame, frames.Forward) or self._forwards.is_waiting(frame.n, node)

    def unsent(self, node: str, some: Sequence[FromNode]) -> None:
        """Another node will not get these."""
        for frame in some:
            if isinstance(frame, frames.Forward):
                UNSENT.inc()
                self._store(self._forwards.take(frame.n, node))
            elif isinstance(frame, frames.Look | frames.LookAtAll):
                self.lost_track = True

    def changed(self, gone: frozenset[str]) -> None:
        """Nodes have come, or these have gone: what they had is stored here."""
        self._whereabouts.forget_all()
        self._outbox.forget(gone)
        self._silent -= gone
        for node in gone:
            self._origins.pop(node, None)
        for forward in self._forwards.take_of(gone):
            LATE.inc()
            self._store(forward)

    async def look_at_all(self, pause: float = 0.05) -> None:
        """Look into the mailboxes of all devices that are attached here, some at a time."""
        for page in pages(list(self._router.attached()), 200):
            for number in page:
                self._router.look_again(number)
            await asyncio.sleep(pause)

    def patrol(self, tick: int, ticks: int) -> None:
        """Look into one part of them: into all in so many ticks."""
        if tick == 0:
            self._beat = list(self._router.attached())
        size = -(-len(self._beat) // ticks)
        for number in self._beat[tick * size : (tick + 1) * size]:
            self._router.look_again(number)

    @property
    def waiting(self) -> int:
        """Envelopes that other nodes have and have not answered, or whose recipients are looked for."""
        return len(self._forwards) + self._asked

    async def wait(self) -> None:
        """Until nothing is waiting."""
        self._idle.clear()
        if self.waiting:
            await self._idle.wait()

    def close(self) -> None:
        """Store what other nodes have not answered."""
        for forward in self._forwards.take_all():
            self._store(forward)
