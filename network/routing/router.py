"""Takes each envelope to its recipient: straight to the device when it is there, through the mailbox when it is not.

A sender hears `accepted` when its envelope is stored or acknowledged by the recipient's device, whichever comes first.
With both ends online nothing is written.
"""

from __future__ import annotations

import collections
from collections.abc import Iterable, Sequence

from prometheus_client import Counter, Gauge

from network.connections.windows import Windows
from network.routing import admission
from network.routing.admission import Admission, Directory
from network.routing.delivery_queue import Lane, Recipient
from network.routing.mailbox import MailboxStore
from network.routing.reader import PAGE, Reader
from network.routing.sequence import Sequence as Numbers
from network.routing.transit import STORED, STORING, WAITING, Origin, Transit, from_row, from_send
from network.routing.undecided import Undecided
from network.routing.writer import Writer
from network.settings import Limits
from tidings.runtime import crashpoints
from tidings.runtime.clock import Clock
from tidings.storage.network import mailbox
from tidings.wire import device

ROUTED = Counter("tidings_network_envelopes_total", "Envelopes taken from senders")
DELIVERED = Counter("tidings_network_deliveries_total", "Envelopes sent to devices, repeats included")
UNDECIDED = Gauge("tidings_network_undecided", "Envelopes in memory whose senders wait for the decision")
ONLINE = Gauge("tidings_network_devices_online", "Devices that are logged in")


class Router:
    """The lanes of all recipients, and the envelopes in memory.

    Bounds, and what happens at them: `Limits.undecided` and `undecided_bytes` over everything, the sender is refused as
    `overloaded`; `Windows` for each device and each connection, the rest is held; `Limits.held` for each lane, all that
    is held is stored.
    """

    def __init__(
        self, store: MailboxStore, directory: Directory, numbers: Numbers, clock: Clock, limits: Limits, ttl: int
    ) -> None:
        self._page = min(PAGE, limits.window)
        self._windows = Windows(limits)
        self._reader = Reader(store, clock, self._page_read)
        self._admission = Admission(directory, self._route, limits.undecided)
        self._numbers = numbers
        self._clock = clock
        self._limits = limits
        self._ttl = ttl
        self._writer = Writer(store, self._stored, self._lost, room=limits.undecided)
        self._lanes: dict[str, Lane] = {}
        self._undecided = Undecided(limits)
        # In the order of arrival; decided ones leave it when they come due.
        self._due: collections.deque[Transit] = collections.deque()
        self._routed = self._delivered = self._online = 0
        self._closed = False

    # Senders.

    def send(self, origin: Origin, frame: device.Send) -> None:
        """Take one envelope, which its connection has checked for form."""
        self._admission.take(origin, frame)

    def _route(self, origin: Origin, frame: device.Send) -> None:
        if self._closed or self._undecided.is_repeat(origin, frame):
            return
        if not self._undecided.has_room(len(frame.body)):
            admission.refuse(origin, frame, device.OVERLOADED)
            return
        now = int(self._clock.now() * 1000)
        ttl = min(frame.ttl, self._ttl) if frame.ttl else self._ttl
        lane = self._lane(frame.to)
        due = self._clock.monotonic() + self._limits.store_after
        transit = from_send(origin, frame, lane, seq=self._numbers.next(), now=now, ttl=ttl, due=due)
        self._undecided.add(transit)
        self._routed += 1
        if lane.session is None:
            self._put_away(transit)
            return
        self._due.append(transit)
        if lane.held or lane.draining or not self._windows.takes(lane, lane.session):
            self._hold(transit)
        else:
            self._deliver(lane, lane.session, transit)

    # Recipients.

    def attach(self, number: str, session: Recipient, epoch: int = 0) -> None:
        """A device logged in: deliver what waits for it, then what comes. It leaves the connection it was on.

        On the connection that it is on already, only its epoch changes.
        """
        lane = self._lane(number)
        if lane.session is session:
            lane.epoch = epoch
            return
        self.expel(number, device.REPLACED)
        lane = self._lane(number)
        lane.session = session
        lane.epoch = epoch
        lane.attachment += 1
        lane.cursor = 0
        lane.backlog = True
        self._online += 1
        self._pump(lane)

    def is_stale(self, number: str, epoch: int) -> bool:
        """Is the device logged in under a higher epoch than this one? Without an epoch nothing is stale.

        Epochs are known only while somebody is logged in under them: whoever comes back with older ones, from a backup
        say, gets in when the other has gone.
        """
        lane = self._lanes.get(number)
        return lane is not None and 0 < epoch < lane.epoch

    def detach(self, number: str, session: Recipient) -> None:
        """A device logged out, or its connection is gone."""
        lane = self._lanes.get(number)
        if lane is not None and lane.session is session:
            self._detach(lane, "")

    def expel(self, number: str, reason: str) -> None:
        """The device's token is void: it leaves the connection it is on."""
        lane = self._lanes.get(number)
        if lane is not None and lane.session is not None:
            self._detach(lane, reason)

    def acked(self, session: Recipient, numbers: Iterable[int]) -> None:
        """A device has these deliveries on its disk. Numbers that are not in flight mean nothing."""
        crashpoints.reach(crashpoints.AFTER_DEVICE_ACK_BEFORE_ROW)
        deliveries = session.deliveries
        lanes: set[Lane] = set()
        for n in numbers:
            lane = deliveries.pop(n, None)
            if lane is None:
                continue
            transit = lane.returned(session, n)
            transit.acked = True
            if transit.state == STORED:
                self._writer.remove(transit.seq)
            else:
                self._undecided.accept(transit)
            if lane.held or lane.backlog:
                lanes.add(lane)
        for lane in lanes:
            self._pump(lane)
        self._give_turns(session)

    def is_removing(self, seq: int) -> bool:
        """Is this stored envelope acknowledged already, its removal not yet committed?"""
        return seq in self._writer.removing

    def in_flight(self, number: str) -> set[int]:
        """The `seq` of what is delivered to a device and not acknowledged."""
        lane = self._lanes.get(number)
        return {transit.seq for transit in lane.in_flight.values()} if lane is not None else set()

    def _detach(self, lane: Lane, reason: str) -> None:
        session = lane.session
        assert session is not None
        self._online -= 1
        for transit in lane.leave(session):
            if transit.state == WAITING:
                self._put_away(transit)
            elif transit.state == STORING and not transit.counted:
                # The next login must not be taken for drained before this one is in the mailbox.
                transit.counted = True
                lane.expect(transit.seq)
        while lane.held:
            self._put_away(lane.held.popleft())
        self._forget_if_unused(lane)
        session.detached(lane.number, reason)
        self._give_turns(session)

    # Lanes.

    def _lane(self, number: str) -> Lane:
        lane = self._lanes.get(number)
        if lane is None:
            lane = self._lanes[number] = Lane(number, self._page)
        return lane

    def _forget_if_unused(self, lane: Lane) -> None:
        if lane.unused:
            self._lanes.pop(lane.number, None)

    def _deliver(self, lane: Lane, session: Recipient, transit: Transit) -> None:
        lane.sent(session, session.deliver(transit.frame, lane), transit)
        self._delivered += 1
        if transit.state == STORED:
            transit.frame.body = b""

    def _hold(self, transit: Transit) -> None:
        held = transit.lane.held
        held.append(transit)
        if len(held) > self._limits.held:
            while held:
                self._put_away(held.popleft())

    def _put_away(self, transit: Transit) -> None:
        """Store an envelope that is not in flight."""
        transit.counted = True
        transit.lane.expect(transit.seq)
        self._store_one(transit)

    def _store_one(self, transit: Transit) -> None:
        transit.state = STORING
        self._writer.insert(transit)

    def _pump(self, lane: Lane) -> None:
        """Let a lane do what it can, when those that wait for the same connection have had their turns."""
        session = lane.session
        if session is None:
            self._forget_if_unused(lane)
        elif (lane.backlog or lane.held) and not lane.reading and self._windows.takes(lane, session):
            self._advance(lane, session)

    def _give_turns(self, session: Recipient) -> None:
        """Something has left this connection."""
        while (lane := self._windows.next_turn(session)) is not None:
            self._advance(lane, session)

    def _advance(self, lane: Lane, session: Recipient) -> None:
        """Read the mailbox first, then deliver what is held."""
        if lane.reading or self._closed:
            return
        if lane.backlog:
            if self._windows.is_worth_a_page(lane):
                self._reader.start(lane)
            return
        while lane.held and not lane.storing and self._windows.has_room(lane, session):
            self._deliver(lane, session, lane.held.popleft())

    def _page_read(self, lane: Lane, attachment: int, page: Sequence[mailbox.Envelope] | None) -> None:
        session = lane.session
        if session is None or attachment != lane.attachment:
            lane.backlog = session is not None
            self._pump(lane)
            return
        if page is None:
            # The device logs in again and gets everything from the start.
            self._detach(lane, device.OVERLOADED)
            return
        now = int(self._clock.now() * 1000)
        cut = full = False
        passed = 0
        for row in page:
            if lane.gap is not None and row.seq >= lane.gap:
                cut = True
                break
            if row.expires_at <= now or row.seq in self._writer.removing:
                lane.cursor = row.seq
            elif self._windows.has_room(lane, session):
                self._deliver(lane, session, from_row(row, lane))
            else:
                full = True
                break
            passed += 1
        if cut or full or len(page) >= lane.page_size:
            lane.backlog = True
        lane.page_size = max(1, passed) if full else min(2 * lane.page_size, self._page)
        # After a gap it is worth looking again only when something has been stored, and that is the next pump.
        if not (cut and lane.storing):
            self._pump(lane)

    # The mailbox.

    def _stored(self, transits: Sequence[Transit]) -> None:
        lanes: set[Lane] = set()
        for transit in transits:
            transit.state = STORED
            if transit.counted:
                del transit.lane.storing[transit.seq]
                transit.lane.backlog = transit.lane.session is not None
                lanes.add(transit.lane)
            if transit.acked:
                self._writer.remove(transit.seq)
            else:
                self._undecided.accept(transit)
        for lane in lanes:
            self._pump(lane)

    def _lost(self, transit: Transit) -> None:
        """The database will never take this one. While it is with its device that decides: it may have been shown."""
        lane = transit.lane
        if transit.counted:
            transit.counted = False
            del lane.storing[transit.seq]
        if transit.acked:
            self._undecided.accept(transit)
        elif transit.in_flight:
            transit.state = WAITING
        else:
            self._undecided.refuse(transit, device.INVALID, "the mailbox cannot hold it")
        self._pump(lane)

    # Transactions elsewhere that put something into a mailbox.

    def reserve(self, number: str) -> int:
        """A `seq` for an envelope that the caller is about to store; what comes after it waits until `release`."""
        lane = self._lane(number)
        while lane.held:
            self._put_away(lane.held.popleft())
        seq = self._numbers.next()
        lane.expect(seq)
        return seq

    def release(self, number: str, seq: int, row: mailbox.Envelope | None = None) -> None:
        """That transaction has ended, one way or the other; `row` is what it has certainly stored."""
        lane = self._lanes[number]
        del lane.storing[seq]
        session = lane.session
        if session is not None:
            # With nothing older on its way it need not be read from the mailbox.
            first = (
                not lane.backlog and not lane.reading and seq > lane.cursor and seq < min(lane.storing, default=seq + 1)
            )
            if row is not None and first and self._windows.takes(lane, session):
                self._deliver(lane, session, from_row(row, lane))
            else:
                lane.backlog = True
        self._pump(lane)

    # Time.

    def sweep(self) -> None:
        """Store what has been undecided for too long; count. Call it about ten times a second."""
        now = self._clock.monotonic()
        due = self._due
        while due and due[0].due <= now:
            transit = due.popleft()
            if transit.state != WAITING or transit.acked:
                continue
            if transit.in_flight:
                self._store_one(transit)
                continue
            # Whatever was held before it goes first, so that what stays held is younger than what is stored.
            held = transit.lane.held
            while held and held[0].seq <= transit.seq:
                self._put_away(held.popleft())
        ROUTED.inc(self._routed)
        DELIVERED.inc(self._delivered)
        self._routed = self._delivered = 0
        UNDECIDED.set(len(self._undecided))
        ONLINE.set(self._online)

    @property
    def undecided(self) -> int:
        """Envelopes whose senders wait."""
        return len(self._undecided)

    @property
    def online(self) -> int:
        """Devices that are logged in."""
        return self._online

    async def close(self) -> None:
        """Take no more, store everything undecided, and wait until that is done and the senders are told."""
        self._closed = True
        for transit in self._due:
            if transit.state == WAITING and not transit.acked:
                if transit.in_flight:
                    self._store_one(transit)
                else:
                    self._put_away(transit)
        self._due.clear()
        for lane in self._lanes.values():
            lane.held.clear()
        await self._writer.close()
        await self._reader.close()
