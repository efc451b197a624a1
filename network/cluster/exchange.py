"""Exchange of envelopes between nodes: each goes to the node that its recipient is attached to, which answers.

The origin stores what is not answered in time. Whoever stores an envelope for a device that is not attached to it
looks, after the commit, where that device is; whoever attaches one claims it before it reads its mailbox. So one of
both sees the other. What comes later for the same device waits until its node has been told.
"""

from __future__ import annotations

import asyncio
import functools
import itertools
import logging
from collections.abc import Callable, Iterable, Sequence

from prometheus_client import Counter, Gauge

from network.cluster import frames
from network.cluster.arrivals import Arrivals
from network.cluster.forwards import Forward, Forwards, Stream, stream_of
from network.cluster.frames import Claims, FromNode
from network.cluster.lookout import Lookout
from network.cluster.membership import Membership
from network.cluster.outbox import Outbox
from network.cluster.presence import Presence
from network.cluster.whereabouts import Whereabouts, holder
from network.routing import admission
from network.routing.delivery_queue import Origin
from network.routing.shared_router import SharedRouter
from network.settings import Limits
from tidings.runtime.batcher import BatcherFull
from tidings.runtime.clock import Clock
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

    lookout: for what is stored here instead.
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
        self._arrivals = Arrivals(clock)
        self._ranks = itertools.count(1)
        self._asking: dict[str, list[Forward]] = {}
        self._asked = 0
        self._origins: dict[str, NodeOrigin] = {}
        # Nodes that left something unanswered, until they say something.
        self._silent: set[str] = set()
        self.lookout = Lookout(
            membership,
            presence,
            outbox,
            whereabouts=self._whereabouts,
            clock=clock,
            patience=self._patience,
            look_here=router.look_again,
        )
        self._idle = asyncio.Event()

    # For the router.

    def takes(self, origin: Origin, frame: device.Send, *, here: bool, storing: bool) -> bool:
        """Is this envelope delivered by another node, or may it be?"""
        if frame.to in self._asking:
            # Behind those that came before it.
            self._ask(self._make(origin, frame))
            return True
        if here:
            self._prepare_here(frame)
            return False
        if self._forwards.is_repeat(origin, frame):
            return True
        forward = self._make(origin, frame)
        if not self._membership.in_touch:
            self._store(forward)
            return True
        claims = self._whereabouts.get(frame.to)
        if claims is None:
            self._ask(forward)
            return True
        node = self._choose(claims, frame)
        if not node:
            self._store(forward)
        elif storing or self.lookout.is_behind(frame.to):
            self._ask(forward, storing=storing)
        else:
            self._forward(forward, node)
        return True

    def _make(self, origin: Origin, frame: device.Send) -> Forward:
        return Forward(frame, origin, next(self._ranks))

    def attached(self, number: str) -> None:
        """Note that a device, or a part of it, attached here."""
        self._arrivals.note(number)

    def stored(self, number: str, rows: Iterable[Envelope] = ()) -> None:
        """Something was stored for a device that is not attached here."""
        found = tuple(rows)
        # Rows of a sender that has just come may have older ones before them: the mailbox is read instead.
        self.lookout.stored(number, () if any(self._arrivals.has(row.sender) for row in found) else found)

    def take_first_copy(self, sender: str, number: str) -> bool:
        """Whether the mailbox has to be read before the next copy of this sender's goes to a device that is here."""
        return self._arrivals.has(sender) and self._arrivals.take_first(Stream(sender, number, device.GROUP_SLOT))

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
        unreachable = node == self._membership.me or node in self._silent or self.lookout.is_blind(node)
        return "" if unreachable else node

    # Wherever an envelope goes, the older ones of its stream go first: they were given to a node that may never deliver
    # them, or only after this one. What is delivered twice for that its device drops.

    def _prepare_here(self, frame: device.Send) -> None:
        """An envelope is about to be delivered here."""
        for older in self._forwards.take_older(frame):
            MOVED.inc()
            self._router.send_here(older.origin, older.frame)
        if self._arrivals.has(frame.sender) and self._arrivals.take_first(stream_of(frame)):
            self._router.look_before(frame)

    def _forward(self, forward: Forward, node: str) -> None:
        for older in self._forwards.take_older(forward.frame, forward.rank, not_at=node):
            MOVED.inc()
            self._give(older, node)
        self._give(forward, node)

    def _give(self, forward: Forward, node: str) -> None:
        frame = forward.frame
        if not self._forwards.has_room(frame):
            admission.refuse(forward.origin, frame, device.OVERLOADED)
            return
        forward.node, forward.due = node, self._clock.monotonic() + self._patience
        forward.tries += 1
        n = self._forwards.add(forward)
        look = self._arrivals.has(frame.sender) and self._arrivals.take_first(stream_of(frame))
        if not self._outbox.put(node, frames.Forward(n, frame, look)):
            self._not_given(n, node)

    def _not_given(self, n: int, node: str) -> None:
        forward = self._forwards.take(n, node)
        if forward is not None:
            UNSENT.inc()
            self._arrivals.put_back(stream_of(forward.frame))
            self._store(forward)

    def _store(self, forward: Forward) -> None:
        for older in self._forwards.take_older(forward.frame, forward.rank):
            LATE.inc()
            self._keep(older)
        self._keep(forward)

    def _keep(self, forward: Forward) -> None:
        self._router.send_here(self.lookout.storing(forward.frame.to, forward.origin), forward.frame)

    def _ask(self, forward: Forward, *, storing: bool = False) -> None:
        origin, frame = forward.origin, forward.frame
        if self._asked >= self._limits.undecided:
            admission.refuse(origin, frame, device.OVERLOADED)
            return
        waiting = self._asking.get(frame.to)
        if waiting is None:
            try:
                self._look_up(frame.to, storing=storing)
            except BatcherFull:
                admission.refuse(origin, frame, device.OVERLOADED)
                return
            waiting = self._asking[frame.to] = []
        waiting.append(forward)
        self._asked += 1

    def _look_up(self, number: str, *, storing: bool = False) -> None:
        """Raises `BatcherFull`."""
        if storing or self.lookout.is_behind(number):
            self.lookout.settled(number).add_done_callback(functools.partial(self._settled, number))
        else:
            self._presence.find(number).add_done_callback(functools.partial(self._found, number))

    def _settled(self, number: str, answer: asyncio.Future[bool]) -> None:
        claims = self._whereabouts.get(number)
        if not answer.cancelled() and not answer.result():
            # Behind it, in the mailbox.
            self._go_on(number, {})
        elif claims is not None and not self.lookout.is_behind(number):
            self._go_on(number, claims)
        else:
            try:
                self._look_up(number)
            except BatcherFull:
                self._go_on(number, {})

    def _found(self, number: str, answer: asyncio.Future[Claims]) -> None:
        claims: Claims = {}
        if not answer.cancelled() and answer.exception() is None:
            claims = answer.result()
            self._whereabouts.learn(number, claims)
        if claims and self.lookout.is_behind(number):
            self._look_up(number)
        else:
            self._go_on(number, claims)

    def _go_on(self, number: str, claims: Claims) -> None:
        """Those that have waited, in their order."""
        waiting = self._asking.pop(number, ())
        self._asked -= len(waiting)
        for forward in waiting:
            origin, frame = forward.origin, forward.frame
            node = self._choose(claims, frame)
            if self._router.is_here(frame):
                self._prepare_here(frame)
                self._router.send_here(origin, frame)
            elif not node or forward.tries >= TRIES:
                self._store(forward)
            elif not self._forwards.is_repeat(origin, frame):
                self._forward(forward, node)

    # What other nodes say.

    def received(self, source: str, frame: FromNode) -> bool:
        """One frame; was it one of an exchange?"""
        self._silent.discard(source)
        if isinstance(frame, frames.Forward):
            frame.send.n = frame.n
            self._deliver(source, frame.send, look=frame.look)
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
            # While a claim is being repeated the others may have stored what nobody could be told of.
            self._router.look_again(frame.number, () if self._presence.is_repeating(frame.number) else frame.rows)
        else:
            return False
        return True

    def _deliver(self, source: str, frame: device.Send, *, look: bool) -> None:
        origin = self._origins.get(source)
        if origin is None:
            origin = self._origins[source] = NodeOrigin(functools.partial(self._outbox.put, source))
        if self._presence.is_ours(frame.to, device.slot_of(frame.sender, frame.kind, frame.group)):
            if look or self._presence.is_repeating(frame.to):
                self._router.look_before(frame)
            self._router.send_here(origin, frame)
        elif self._router.is_storing(frame) or self.lookout.is_behind(frame.to):
            # What was in flight when the device left comes before this one, wherever the device is now.
            say = functools.partial(self._say_moved, source, frame.n)
            self.lookout.settled(frame.to).add_done_callback(say)
        else:
            self._say_moved(source, frame.n)

    def _say_moved(self, source: str, n: int, _: object = None) -> None:
        self._outbox.put(source, frames.Moved(n))

    def _answered(self, source: str, n: int, answer: Callable[[Forward], None]) -> None:
        forward = self._forwards.take(n, source)
        if forward is not None:
            ANSWERED.inc()
            answer(forward)

    def _moved(self, source: str, n: int) -> None:
        forward = self._forwards.take(n, source)
        if forward is not None:
            self._whereabouts.forget(forward.frame.to)
            self._arrivals.put_back(stream_of(forward.frame))
            # With those behind it, which would be behind what comes until they have moved, too.
            for each in (forward, *self._forwards.take_younger(forward)):
                MOVED.inc()
                self._ask(each)

    # Time, and nodes that come and go.

    def sweep(self) -> None:
        """Store here what was not answered in time. Call it about ten times a second."""
        late = list(self._forwards.take_late(self._clock.monotonic()))
        self._silent.update(forward.node for forward in late)
        # With what is behind them in their streams.
        behind = [younger for forward in late for younger in self._forwards.take_younger(forward)]
        for forward in sorted((*late, *behind), key=_rank_of):
            LATE.inc()
            self._store(forward)
        self.lookout.sweep()
        self._arrivals.sweep()
        WAITING.set(len(self._forwards))
        if not self.waiting:
            self._idle.set()

    def is_wanted(self, node: str, frame: FromNode) -> bool:
        """Has this one to be sent yet? An envelope that was stored here meanwhile has not."""
        return not isinstance(frame, frames.Forward) or self._forwards.is_waiting(frame.n, node)

    def unsent(self, node: str, some: Sequence[FromNode]) -> None:
        """Another node will not get these. Envelopes that wait for their turn stay behind them."""
        for frame in itertools.chain(some, self._outbox.waiting(node)):
            if isinstance(frame, frames.Forward):
                self._not_given(frame.n, node)
        if any(isinstance(frame, frames.Look | frames.LookAtAll) for frame in some):
            self.lookout.unsent(node)

    def changed(self, gone: frozenset[str]) -> None:
        """Nodes have come, or these have gone: what they had is stored here."""
        self._whereabouts.forget_all()
        self._outbox.forget(gone)
        self._silent -= gone
        for node in gone:
            self._origins.pop(node, None)
        self.lookout.gone(gone)
        for forward in sorted(self._forwards.take_of(gone), key=_rank_of):
            LATE.inc()
            self._store(forward)

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
        """Store what other nodes have not answered, and what waits."""
        for forward in sorted(self._forwards.take_all(), key=_rank_of):
            self._store(forward)
        for number in list(self._asking):
            self._go_on(number, {})


def _rank_of(forward: Forward) -> int:
    return forward.rank
