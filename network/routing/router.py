"""Router of envelopes: directly to the recipient's device while it is connected, otherwise through the mailbox.

A sender receives `accepted` when its envelope is stored, or acknowledged by the recipient's device, whichever comes
first. When both ends are online nothing is written.
"""

from __future__ import annotations

import asyncio
import collections
import dataclasses
from collections.abc import Collection, Iterator, Sequence

from prometheus_client import Counter, Gauge

from network.directory.recipients import Recipients
from network.routing import admission
from network.routing.admission import EnvelopeAdmission
from network.routing.delivery_queue import (
    STORED,
    STORING,
    WAITING,
    DeliveryQueue,
    EnvelopeOrigin,
    RecipientConnection,
    Transit,
    from_row,
    from_send,
)
from network.routing.delivery_queues import DeliveryQueues
from network.routing.live_copies import PART, LiveCopies
from network.routing.mailbox import SqlMailbox
from network.routing.mailbox_usage import COUNT_AGAIN, MailboxUsages
from network.routing.quotas import MailboxUsage
from network.routing.reader import PageReader
from network.routing.sequence import Numbers
from network.routing.undecided import UndecidedEnvelopes
from network.routing.writer import Writer
from network.settings import Limits
from tidings.aio import crashpoints
from tidings.aio.clock import Clock
from tidings.aio.service import wait_for
from tidings.storage.database import pages
from tidings.storage.network import mailbox
from tidings.wire import device

ROUTED = Counter("tidings_network_envelopes_total", "Envelopes accepted from senders")
TRANSIENT = Counter(
    "tidings_network_transient_total", "Transient envelopes, by whether their recipient was sent them", ["result"]
)
DELIVERED = Counter("tidings_network_deliveries_total", "Envelopes sent to devices, repeats included")
UNDECIDED = Gauge("tidings_network_undecided", "Envelopes in memory whose senders wait for an answer")
ONLINE = Gauge("tidings_network_devices_online", "Devices that are logged in")

SWEEP = 0.1  # Seconds between two sweeps.
# Devices that an announcement is sent to per event-loop iteration.
PER_ITERATION = 200


@dataclasses.dataclass(eq=False)
class Router:
    """Router of envelopes between the queues of all recipients.

    Bounds:
    - `Limits.undecided` and `undecided_bytes` for all envelopes; beyond them a send is refused as `overloaded`.
    - `Quotas` for each sender and recipient; beyond them it is refused as `rate_limited` or `mailbox_full`.
    - Windows for each device and each connection; further envelopes are held.
    - `Limits.held` for each queue; beyond it all held envelopes are stored.

    As a service it sweeps ten times a second.
    """

    name = "sweeper"

    store: SqlMailbox
    directory: Recipients
    mailbox_usages: MailboxUsages
    _: dataclasses.KW_ONLY
    numbers: Numbers
    clock: Clock
    limits: Limits
    # Seconds that an envelope waits at most.
    ttl: int
    # As for `UndecidedEnvelopes`.
    traced: Collection[str] = ()
    # Copies of group messages, which are admitted elsewhere.
    live: LiveCopies = dataclasses.field(init=False)

    def __post_init__(self) -> None:
        limits = self.limits
        self._reader = PageReader(self.store, self.clock, self._page_read)
        room = limits.undecided + limits.undecided // PART
        self._writer = Writer(self.store, self._stored, self._lost, room=room)
        self._queues = DeliveryQueues(self._reader, self._writer, limits)
        self._admission = EnvelopeAdmission(
            self.directory, self.mailbox_usages, self._route, self._queues.is_empty, limit=limits.undecided
        )
        self._undecided = UndecidedEnvelopes(limits, traced=self.traced)
        # In the order of arrival; decided envelopes are removed when they are due.
        self._due: collections.deque[Transit] = collections.deque()
        self.live = LiveCopies(self._queues, self._due, self.numbers, self.clock, limits)
        self._routed = self._online = self._handled = 0
        self._closed = False

    @property
    def recipients(self) -> int:
        """Return the number of recipients with a queue: those with an attached device, an envelope or a page being
        read."""
        return len(self._queues)

    # Senders.

    def send(self, origin: EnvelopeOrigin, frame: device.Send) -> None:
        """Route one envelope, which its connection has validated."""
        self._admission.take(origin, frame)

    def _route(self, origin: EnvelopeOrigin, frame: device.Send, usage: MailboxUsage) -> None:
        if self._closed or self._undecided.redirect_repeat(origin, frame):
            return
        moment, size = self.clock.monotonic(), mailbox.size_of(frame.body, frame.refs)
        if not self._undecided.has_room(frame.sender, size):
            admission.refuse(origin, frame, device.OVERLOADED)
            return
        if frame.kind == device.TRANSIENT:
            self._deliver_transient(frame, usage, moment)
            origin.accepted(frame.n)
            return
        refusal = self.mailbox_usages.take(usage, frame, size, moment)
        if refusal is COUNT_AGAIN:
            self._admission.take(origin, frame)
            return
        if refusal is not None:
            admission.refuse(origin, frame, refusal.reason, refusal.detail, refusal.retry_after)
            return
        now = self.clock.now_ms()
        ttl = min(frame.ttl, self.ttl) if frame.ttl else self.ttl
        queue = self._queues.get_for(frame)
        due = moment + self.limits.store_after
        transit = from_send(origin, frame, queue, size=size, seq=self.numbers.next(), now=now, ttl=ttl, due=due)
        self._undecided.add(transit)
        self._routed += 1
        if queue.session is None:
            self._queues.store_undelivered(transit)
            return
        self._deliver(queue, queue.session, transit)

    def _deliver_transient(self, frame: device.Send, usage: MailboxUsage, now: float) -> None:
        """Send a transient envelope to its device, or drop it: while the device is detached or has envelopes waiting,
        and beyond the rate limit of the pair.

        now: monotonic seconds.
        """
        queue, sender_usage = self._queues.find_for(frame), usage.of_sender(frame.sender, now)
        session = queue.session if queue is not None else None
        if (
            queue is None
            or session is None
            or queue.held
            or queue.draining
            or not self.mailbox_usages.quota_check.take_token(sender_usage, now)
            or not self._queues.may_deliver(queue, session)
        ):
            TRANSIENT.labels("dropped").inc()
            return
        at = self.clock.now_ms()
        session.deliver_transient(
            device.Deliver(0, frame.to, frame.sender, frame.id, frame.kind, at, frame.body, trace=frame.trace)
        )
        TRANSIENT.labels("delivered").inc()

    def _deliver(self, queue: DeliveryQueue, session: RecipientConnection, transit: Transit) -> None:
        """Deliver a new envelope, or hold it."""
        self._due.append(transit)
        if queue.held or queue.draining or not self._queues.may_deliver(queue, session):
            self._queues.hold(transit)
        else:
            self._queues.deliver(queue, session, transit)

    def attached(self) -> Iterator[str]:
        """Return the numbers of all attached devices; a device appears once per attached partition."""
        return (queue.number for queue in self._queues if queue.session is not None)

    async def announce(self, id: str, text: bytes) -> int:
        """Deliver an announcement to all attached devices; return their number."""
        count = 0
        for page in pages(list(dict.fromkeys(self.attached())), PER_ITERATION):
            for number in page:
                frame = device.Send(0, number, number, id, device.ANNOUNCEMENT, text)
                count += self._announce(frame)
            await asyncio.sleep(0)
        return count

    def _announce(self, frame: device.Send) -> bool:
        """Deliver an envelope of the network to an attached device; False when it is not attached.

        It is stored when the delivery takes too long.
        """
        queue = self._queues.get_for(frame)
        if queue.session is None or self._closed:
            self._queues.drop_if_unused(queue)
            return False
        now, due = self.clock.now_ms(), self.clock.monotonic() + self.limits.store_after
        size = mailbox.size_of(frame.body, frame.refs)
        self._deliver(
            queue,
            queue.session,
            from_send(None, frame, queue, size=size, seq=self.numbers.next(), now=now, ttl=self.ttl, due=due),
        )
        return True

    # Recipients.

    def attach(
        self, number: str, session: RecipientConnection, login_epoch: int = 0, part: device.Partition = device.WHOLE
    ) -> None:
        """Attach a device, or a partition of it: deliver waiting envelopes, then new ones.

        The device is removed from its previous connection, and partitions of another layout from theirs. On the same
        connection only its login epoch and layout change.
        """
        for queue in self._queues.of(number):
            former = queue.part
            if queue.session is None:
                continue
            if former.is_same_part(part):
                is_replaced = queue.session is not session
            else:
                is_replaced = former.layout != part.layout or former.partitions != part.partitions
            if is_replaced:
                self._detach(queue, device.REPLACED)
        self._queues.divide(number, part.partitions)
        queue = self._queues.get(number, part.partition)
        queue.part = part
        queue.login_epoch = login_epoch
        if queue.session is session:
            return
        self._online += not self.is_online(number)
        queue.session = session
        queue.attachment += 1
        queue.cursor = 0
        queue.backlog = True
        self._queues.pump(queue)

    def is_stale(self, number: str, login_epoch: int) -> bool:
        """Return whether the device, or its first partition, is logged in under a higher login epoch.

        Without a login epoch (0) it is never stale. The epoch is known only while a device is logged in under it: a
        device restored from a backup, with an older epoch, may log in when the other has disconnected.
        """
        return any(
            queue.session is not None and queue.part.partition == 0 and 0 < login_epoch < queue.login_epoch
            for queue in self._queues.of(number)
        )

    def is_stale_login(self, number: str, login_epoch: int, part: device.Partition) -> bool:
        """Return whether the device is logged in in a higher layout, or this partition under a higher login epoch."""
        return any(
            queue.session is not None
            and (queue.part.layout > part.layout or (queue.part == part and 0 < login_epoch < queue.login_epoch))
            for queue in self._queues.of(number)
        )

    def detach(self, number: str, session: RecipientConnection) -> None:
        """Detach a device that has logged out or whose connection is closed."""
        for queue in self._queues.of(number):
            if queue.session is session:
                self._detach(queue, "")

    def expel(self, number: str, reason: str) -> None:
        """Remove a device from its connections, because its token is void."""
        for queue in self._queues.of(number):
            if queue.session is not None:
                self._detach(queue, reason)

    def acked(self, session: RecipientConnection, numbers: Sequence[int]) -> int:
        """Handle acknowledgements: the device has these deliveries on its disk.

        Returns how many of the numbers are not in flight; these are ignored.
        """
        crashpoints.reach(crashpoints.AFTER_DEVICE_ACK_BEFORE_ROW)
        deliveries = session.deliveries
        if not deliveries:
            return len(numbers)
        strays = 0
        queues: set[DeliveryQueue] = set()
        for n in numbers:
            queue = deliveries.pop(n, None)
            if queue is None:
                strays += 1
                continue
            transit = queue.returned(session, n)
            transit.acked = True
            usage = self.mailbox_usages.get(queue.number)
            if usage is not None and transit.frame.kind not in device.NOTICES:
                usage.remove(transit.frame.sender, transit.size)
            if transit.state == STORED:
                if transit.frame.kind not in device.NOTICES:
                    self.mailbox_usages.stored.remove(transit.frame.sender, transit.size)
                self._writer.remove(transit.seq)
            else:
                if transit.state == STORING:
                    self._writer.expect_removal(transit.seq)
                self._undecided.accept(transit)
            if queue.held or queue.backlog:
                queues.add(queue)
        for queue in queues:
            self._queues.pump(queue)
        self._queues.continue_waiting(session)
        return strays

    def is_removing(self, seq: int) -> bool:
        """Return whether this stored envelope is acknowledged but its removal has not committed."""
        return seq in self._writer.removing

    def in_flight(self, number: str) -> set[int]:
        """Return the `seq` of each envelope that is delivered to a device and not acknowledged."""
        return {transit.seq for queue in self._queues.of(number) for transit in queue.in_flight.values()}

    def is_online(self, number: str) -> bool:
        """Return whether the device, or a partition of it, is attached to this node."""
        return any(queue.session is not None for queue in self._queues.of(number))

    def hosts_of(self, number: str) -> Sequence[str]:
        """Return the addresses from which the device, or its partitions, are attached to this node."""
        return [queue.session.host for queue in self._queues.of(number) if queue.session is not None]

    def _detach(self, queue: DeliveryQueue, reason: str) -> None:
        session = queue.session
        assert session is not None
        for transit in queue.leave(session):
            if transit.state == WAITING:
                self._queues.store_undelivered(transit)
            elif transit.state == STORING and not transit.counted:
                # The next login must wait until this envelope is in the mailbox.
                transit.counted = True
                queue.expect(transit.seq, transit.hash_slot)
        self._online -= not self.is_online(queue.number)
        self._queues.store_held(queue)
        self._queues.drop_if_unused(queue)
        session.detached(queue.number, reason)
        self._queues.continue_waiting(session)

    # Mailbox.

    def _page_read(self, queue: DeliveryQueue, attachment: int, page: Sequence[mailbox.Envelope] | None) -> None:
        session = queue.session
        if session is None or attachment != queue.attachment:
            queue.backlog = session is not None
            self._queues.pump(queue)
            return
        if page is None:
            # The device logs in again and reads its mailbox from the start.
            self._detach(queue, device.OVERLOADED)
            return
        now = self.clock.now_ms()
        cut = full = False
        passed = 0
        for row in page:
            if queue.gap is not None and row.seq >= queue.gap:
                cut = True
                break
            if row.expires_at <= now or row.seq in self._writer.removing or row.seq in queue.known:
                queue.cursor = row.seq
            elif self._queues.has_room(queue, session):
                self._queues.deliver(queue, session, from_row(row, queue))
            else:
                full = True
                break
            passed += 1
        if cut or full or len(page) >= queue.page_size:
            queue.backlog = True
        queue.page_size = max(1, passed) if full else min(2 * queue.page_size, self._queues.page)
        # After a gap another read is useful only when an envelope has been stored, which causes the next pump.
        if not (cut and queue.storing):
            self._queues.pump(queue)

    def _stored(self, transits: Sequence[Transit]) -> None:
        queues: set[DeliveryQueue] = set()
        for transit in transits:
            transit.state = STORED
            if transit.counted:
                queue = self._queues.expecting(transit)
                del queue.storing[transit.seq]
                queue.backlog = queue.session is not None
                queues.add(queue)
            if transit.acked:
                self._writer.remove(transit.seq)
            else:
                if transit.frame.kind not in device.NOTICES:
                    self.mailbox_usages.stored.add(transit.frame.sender, transit.size)
                self._undecided.accept(transit)
        for queue in queues:
            self._queues.pump(queue)

    def _lost(self, transit: Transit) -> None:
        """Handle an envelope that the database will never accept.

        While it is in flight, the device's acknowledgement decides: the device may have shown it.
        """
        queue = transit.queue
        if transit.counted:
            transit.counted = False
            queue = self._queues.expecting(transit)
            del queue.storing[transit.seq]
        if transit.acked:
            self._undecided.accept(transit)
        elif transit.in_flight:
            transit.state = WAITING
        else:
            self.mailbox_usages.remove(queue.number, transit.frame.sender, transit.size)
            self._undecided.refuse(transit, device.INVALID, "the mailbox cannot store the message")
        self._queues.pump(queue)

    # Calls by transactions outside of the router that store envelopes.

    def reserve(self, number: str, hash_slot: int) -> int:
        """Return a `seq` for an envelope that the caller is about to store; later ones wait until `release`."""
        queue = self._queues.get(number, hash_slot)
        self._queues.store_held(queue)
        seq = self.numbers.next()
        queue.expect(seq, hash_slot)
        return seq

    def release(self, number: str, hash_slot: int, seq: int, row: mailbox.Envelope | None = None) -> None:
        """Release a reservation after its transaction, whether it committed or not.

        row: envelope that it has certainly stored; `None` when that is not known.
        """
        queue = self._queues.get(number, hash_slot)
        del queue.storing[seq]
        session = queue.session
        if session is not None:
            # With no older envelope on its way, this one need not be read from the mailbox.
            first = (
                not queue.backlog
                and not queue.reading
                and seq > queue.cursor
                and seq < min(queue.storing, default=seq + 1)
            )
            if row is not None and first and self._queues.may_deliver(queue, session):
                self._queues.deliver(queue, session, from_row(row, queue))
            else:
                queue.backlog = True
        self._queues.pump(queue)

    # Timeouts and metrics.

    async def run(self, stop: asyncio.Event) -> None:
        while not await wait_for(stop, SWEEP):
            self.sweep()

    def sweep(self) -> None:
        """Store envelopes that have been undecided for too long; update metrics."""
        now = self.clock.monotonic()
        due = self._due
        while due and due[0].due <= now:
            transit = due.popleft()
            if transit.state != WAITING or transit.acked:
                continue
            if transit.in_flight:
                self._queues.store(transit)
                continue
            # Envelopes held before it are stored first, so that held ones stay younger than stored ones.
            held = transit.queue.held
            while held and held[0].seq <= transit.seq:
                self._queues.store_undelivered(held.popleft())
        ROUTED.inc(self._routed)
        DELIVERED.inc(self._queues.delivered)
        self._handled += self._routed + self._queues.delivered
        self._routed = self._queues.delivered = 0
        self.mailbox_usages.trim()
        self.live.measure()
        UNDECIDED.set(len(self._undecided))
        ONLINE.set(self._online)

    @property
    def undecided(self) -> int:
        """Return the number of envelopes whose senders wait."""
        return len(self._undecided)

    @property
    def handled(self) -> int:
        """Return the number of envelopes received from senders and sent to devices, as of the last sweep."""
        return self._handled

    @property
    def online(self) -> int:
        """Return the number of devices that are logged in."""
        return self._online

    async def close(self) -> None:
        """Accept no more envelopes, store everything undecided, and wait until the senders are notified."""
        self._closed = True
        self._queues.stop()
        self.live.close()
        for transit in self._due:
            if transit.state == WAITING and not transit.acked:
                if transit.in_flight:
                    self._queues.store(transit)
                else:
                    self._queues.store_undelivered(transit)
        self._due.clear()
        for queue in self._queues:
            queue.held.clear()
        await self._writer.close()
        await self._reader.close()
