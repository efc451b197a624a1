"""What arrives from the servers: receipts, inbound messages, notices. On our disk first, then acknowledged.

Deliveries that come while one batch is being committed make up the next. A delivery that was handled before is
recognised (receipts by message and status, messages by id) and only acknowledged.
"""

from __future__ import annotations

import asyncio
import functools
import logging
import re
from collections.abc import Callable, Sequence
from typing import Protocol

from prometheus_client import Counter

from coreapp import codes, ids
from coreapp.account import OwnDevice
from coreapp.groups import receipts
from coreapp.groups.arrivals import Arrivals, GroupEvents
from coreapp.identities import IDENTITY_KEY, Identities, Learnt, described
from coreapp.journal import Change, Journal
from coreapp.media.downloads import Downloads
from coreapp.progress import ProgressBook
from coreapp.session_store import SessionStore
from coreapp.status_reports import Reached, StatusReports
from coreapp.threads import Threads
from coreapp.upstream import Delivery, Upstream
from coreapp.webhook import bodies, inbound
from tidings import e2ee
from tidings.runtime import crashpoints
from tidings.runtime.batcher import Batcher
from tidings.runtime.clock import Clock
from tidings.storage import messages
from tidings.storage.callbacks import Callback
from tidings.storage.database import Database
from tidings.storage.media_downloads import Download
from tidings.storage.messages import Message, Status
from tidings.storage.threads import Unread
from tidings.wire import device as frames

log = logging.getLogger(__name__)

EVENTS = Counter("tidings_events_total", "Deliveries from the servers", ["kind", "outcome"])

STATUSES = {frames.DELIVERED: Status.DELIVERED, frames.READ: Status.READ, frames.EXPIRED: Status.FAILED}
EXPIRED = (codes.EXPIRED, "the message was not delivered within its time to live")
UNREADABLE = "unreadable"  # the kind of a message that could not be decrypted
MAX_ID = 64
_SANE_ID = re.compile(r"[A-Za-z0-9_.:-]{1,64}")


class Wishes(Protocol):
    """What the business wants to hear."""

    @property
    def security(self) -> bool:
        """Does a message say whose keys it came with?"""
        ...

    @property
    def number_changes(self) -> bool:
        """Of recipients who have a new number?"""
        ...


class Events:
    """The inbound side of one shard."""

    def __init__(
        self,
        database: Database,
        journal: Journal,
        upstream: Upstream,
        device: OwnDevice,
        store: SessionStore,
        progress: ProgressBook,
        reports: StatusReports,
        threads: Threads,
        downloads: Downloads,
        groups: GroupEvents,
        identities: Identities,
        wishes: Callable[[], Wishes],
        clock: Clock,
        *,
        shard: int,
    ) -> None:
        self._database = database
        self._journal = journal
        self._upstream = upstream
        self._device = device
        self._store = store
        self._progress = progress
        self._reports = reports
        self._threads = threads
        self._downloads = downloads
        self._groups = groups
        self._identities = identities
        self._wishes = wishes
        # As the batch at hand began.
        self._security = False
        self._clock = clock
        self._shard = shard
        # Bounded by the window that the network keeps for unacknowledged deliveries.
        self._batcher: Batcher[Delivery, None] = Batcher("events", self._flush, max_size=500, max_in_flight=1)

    def delivered(self, delivery: Delivery) -> None:
        """Take one delivery; it is acknowledged once its consequences are on disk."""
        self._batcher.put(delivery).add_done_callback(self._handled)

    async def close(self) -> None:
        """Finish what has arrived."""
        await self._batcher.close()

    def _handled(self, done: asyncio.Future[None]) -> None:
        """After a failure sessions in memory may be ahead of the disk: the shard has to be opened anew."""
        if not done.cancelled() and (error := done.exception()) is not None:
            self._journal.fail(error)

    async def _flush(self, deliveries: Sequence[Delivery]) -> Sequence[None]:
        about = list({message_id for d in deliveries for message_id in _subjects(d)})
        senders = list({d.sender for d in deliveries if d.kind in (frames.PREKEY, frames.MESSAGE, frames.IDENTITY)})
        self._progress.hold(about)
        self._store.pin(senders)
        try:
            await self._load_progress(about)
            await self._store.load(senders)
            arrivals = await self._groups.open(deliveries)
            with self._identities.pinned(senders):
                self._security = self._wishes().security
                await self._identities.load(senders if self._security else _with_keys(deliveries))
                await self._handle(deliveries, arrivals)
        finally:
            self._store.unpin(senders)
            self._progress.release(about)
        crashpoints.reach(crashpoints.AFTER_ROW_BEFORE_NETWORK_ACK)
        self._upstream.acknowledge(deliveries)
        return [None] * len(deliveries)

    async def _handle(self, deliveries: Sequence[Delivery], arrivals: Arrivals) -> None:
        """Returns when all that follows from them is on disk. Nothing else runs before the journal has it."""
        change = _Consequences(arrivals)
        for delivery in deliveries:
            if delivery.kind in STATUSES:
                self._note_receipt(delivery, change)
            elif delivery.kind in (frames.PREKEY, frames.MESSAGE, frames.GROUP):
                self._receive(delivery, change)
            elif delivery.kind == frames.GROUP_CHANGED:
                self._note_group(delivery, change)
            elif delivery.kind == frames.IDENTITY:
                self._note_identity(delivery, change)
            else:
                log.warning("event.unknown", extra={"kind": delivery.kind, "from": delivery.sender})
        report = self._reports.report(change.reached)
        groups = arrivals.changes()
        learnt = change.learnt
        if not (report.statuses or change.messages or change.records or change.dropped or groups or learnt.rows):
            arrivals.committed()
            return
        committed = self._journal.put(
            Change(
                self._device.number,
                new_messages=change.messages,
                whole_sessions=[self._store.seal_whole(peer, record) for peer, record in change.records.items()],
                dropped_sessions=change.dropped,
                used_prekeys=change.used_prekeys,
                statuses=receipts.merged(report.statuses, arrivals.steps.statuses),
                heard=change.heard,
                unread_messages=change.unread,
                read_messages=change.withdrawn,
                new_callbacks=[*report.callbacks, *arrivals.steps.callbacks, *change.callbacks],
                new_downloads=change.downloads,
                finished_downloads=change.ended_downloads,
                groups=groups,
                learnt_identities=learnt.rows,
            )
        )
        self._identities.announce(learnt, committed)
        await committed
        arrivals.committed()
        self._threads.heard(change.heard)
        self._downloads.offer(change.downloads)
        self._downloads.ended(change.ended_downloads)
        for key_id in change.used_prekeys:
            self._device.prekeys.pop(key_id, None)

    async def _load_progress(self, ids: Sequence[str]) -> None:
        """Know of every message that these deliveries are about, inbound ones included."""
        missing = [message_id for message_id in ids if message_id not in self._progress]
        if missing:
            self._progress.load(
                await self._database.query(
                    lambda connection: messages.list_progress(connection, self._device.number, missing)
                )
            )

    def _note_receipt(self, delivery: Delivery, change: _Consequences) -> None:
        status = STATUSES[delivery.kind]
        error = EXPIRED if status is Status.FAILED else None
        for message_id in _subjects(delivery):
            if delivery.group and self._progress.peer(message_id) == delivery.group and status is not Status.FAILED:
                change.reached.append((message_id, Status.SENT, delivery.timestamp // 1000, None))
                news = change.arrivals.receipt(delivery, message_id, status)
                _count(delivery, "noted" if news else "duplicate")
                continue
            # Only the recipient of a message can say what became of it.
            if self._progress.peer(message_id) != delivery.sender:
                _count(delivery, "unknown")
                continue
            _count(delivery, "noted")
            change.reached.append((message_id, status, delivery.timestamp // 1000, error))

    def _receive(self, delivery: Delivery, change: _Consequences) -> None:
        if not _subjects(delivery):
            log.warning("event.unusable_id", extra={"from": delivery.sender})
            _count(delivery, "unusable")
            return
        if delivery.id in self._progress:
            if self._progress.peer(delivery.id) != delivery.sender:
                log.warning("event.id_taken", extra={"id": delivery.id, "from": delivery.sender})
            _count(delivery, "duplicate")
            return
        try:
            if delivery.kind == frames.GROUP:
                plaintext = change.arrivals.decrypt(delivery)
            else:
                plaintext = self._decrypt(delivery, change)
        except e2ee.DuplicateMessage:
            _count(delivery, "duplicate")
            return
        except e2ee.E2EEError as error:
            # Sending it again would not help: it is dropped, and a session that cannot be read is opened anew.
            log.warning(
                "message.undecryptable", extra={"id": delivery.id, "from": delivery.sender, "error": repr(error)}
            )
            _count(delivery, "undecryptable")
            self._tell_unreadable(delivery, change)
            return
        request_id = _request_id(delivery)
        group_id = delivery.group if delivery.kind == frames.GROUP else ""
        message = change.arrivals.understood(inbound.read(plaintext), delivery.sender, group_id)
        self._progress.remember(delivery.id, delivery.sender, Status.RECEIVED, message.kind, request_id)
        change.messages.append(
            Message(
                delivery.id,
                self._device.number,
                self._shard,
                delivery.sender,
                message.kind,
                Status.RECEIVED,
                delivery.timestamp,
                request_id,
            )
        )
        if message.kind == inbound.NULL:
            _count(delivery, "null")
            return
        _count(delivery, "received")
        if isinstance(message.content, inbound.Deleted):
            change.arrivals.withdrawn(message.content.id)
            self._withdraw(delivery, message.content.id, change)
            return
        if isinstance(message.content, inbound.System) and not self._wishes().number_changes:
            return
        if group_id:
            change.arrivals.received(delivery)
        else:
            change.heard[delivery.sender] = delivery.timestamp
            change.unread.append(Unread(self._device.number, delivery.sender, delivery.id, delivery.timestamp))
        if self._downloads.wants(message):
            # Its callback comes with its file.
            change.downloads.append(
                self._downloads.make(
                    delivery.id,
                    delivery.sender,
                    delivery.timestamp,
                    plaintext,
                    request_id=request_id,
                    group=group_id,
                    identity=self._identity_of(delivery),
                )
            )
            return
        self._post(
            delivery.id,
            "inbound_message",
            bodies.inbound(
                delivery.id,
                delivery.sender,
                delivery.timestamp // 1000,
                message,
                identity=self._identity_of(delivery),
                group_id=group_id,
            ),
            request_id,
            change,
        )

    def _identity_of(self, delivery: Delivery) -> bodies.DescribedIdentity | None:
        """Whose keys a message came with, where the business wants to know."""
        if not self._security or delivery.kind == frames.GROUP:
            return None
        identity = self._identities.find(delivery.sender)
        return described(identity) if identity is not None else None

    def _tell_unreadable(self, delivery: Delivery, change: _Consequences) -> None:
        """The business hears once that somebody wrote what nobody can read: they may be asked to write again."""
        self._progress.remember(delivery.id, delivery.sender, Status.RECEIVED, UNREADABLE)
        change.messages.append(
            Message(
                delivery.id,
                self._device.number,
                self._shard,
                delivery.sender,
                UNREADABLE,
                Status.RECEIVED,
                delivery.timestamp,
                "",
            )
        )
        body = bodies.errors(codes.GENERIC, f"a message from {delivery.sender} could not be decrypted")
        self._post(delivery.id, "error", body, _request_id(delivery), change)

    def _note_group(self, delivery: Delivery, change: _Consequences) -> None:
        """A group has changed; the webhook hears of it once."""
        if not _subjects(delivery) or delivery.id in self._progress:
            _count(delivery, "duplicate")
            return
        said = change.arrivals.changed(delivery)
        if said is None:
            _count(delivery, "unusable")
            return
        _count(delivery, "noted")
        self._progress.remember(delivery.id, delivery.sender, Status.RECEIVED, inbound.SYSTEM)
        change.messages.append(
            Message(
                delivery.id,
                self._device.number,
                self._shard,
                delivery.sender,
                inbound.SYSTEM,
                Status.RECEIVED,
                delivery.timestamp,
                "",
            )
        )
        message = inbound.Inbound(inbound.SYSTEM, said)
        body = bodies.inbound(
            delivery.id, delivery.sender, delivery.timestamp // 1000, message, group_id=delivery.group
        )
        self._post(delivery.id, "inbound_message", body, "", change)

    def _withdraw(self, delivery: Delivery, message_id: str, change: _Consequences) -> None:
        """The sender takes back a message of theirs. That it is theirs is known as long as it is in the progress book;
        ids cannot be guessed."""
        if ids.made_at(message_id) is not None or self._progress.peer(message_id) not in (None, delivery.sender):
            log.warning("event.not_theirs", extra={"id": message_id, "from": delivery.sender})
            return
        change.withdrawn.setdefault(delivery.sender, []).append(message_id)
        waiting = self._downloads.withdraw(message_id, change.downloads)
        if waiting is not None:
            change.ended_downloads.append(message_id)
            change.callbacks.append(waiting)
        body = bodies.deleted(message_id, delivery.sender, delivery.timestamp // 1000)
        self._post(message_id, "status_change", body, _request_id(delivery), change)

    def _post(self, subject: str, kind: str, body: bytes, request_id: str, change: _Consequences) -> None:
        now = int(self._clock.now() * 1000)
        change.callbacks.append(
            Callback(
                0,
                self._shard,
                self._device.number,
                subject,
                kind,
                body,
                now,
                request_id=request_id,
                volatile=not self._reports.persist,
            )
        )

    def _decrypt(self, delivery: Delivery, change: _Consequences) -> bytes:
        """The plaintext; the record that changed and the pre-key that was used go into `change`."""
        record = self._store.at_hand(delivery.sender)
        before = record.remote_identity if record is not None else None
        used: int | None = None
        kind = e2ee.MESSAGE
        if delivery.kind == frames.PREKEY:
            kind = e2ee.PREKEY
            first = e2ee.PreKeySignalMessage.parse(delivery.body)
            if record is None or record.needs_setup(first):
                record, used = self._respond(record, first), first.prekey_id
        if record is None:
            raise e2ee.NoSession("a message without a session")
        plaintext = record.decrypt(kind, delivery.body)
        change.records[delivery.sender] = record
        self._store.keep(delivery.sender, record)
        if used is not None:
            change.used_prekeys.append(used)
        if delivery.kind == frames.PREKEY or self._security:
            self._learn(delivery, record.remote_identity, change, before=before)
        return plaintext

    def _respond(self, record: e2ee.SessionRecord | None, first: e2ee.PreKeySignalMessage) -> e2ee.SessionRecord:
        signed = self._device.signed_prekeys.get(first.signed_prekey_id)
        if signed is None:
            raise e2ee.UnknownPreKey(f"signed pre-key {first.signed_prekey_id}")
        prekey = self._device.prekeys.get(first.prekey_id) if first.prekey_id is not None else None
        kyber_id = first.kyber_prekey_id
        kyber = self._device.kyber_prekeys.get(kyber_id) if kyber_id is not None else None
        try:
            return e2ee.SessionRecord.respond(record, self._device.identity, first, signed, prekey, kyber)
        except e2ee.UntrustedIdentity:
            # The recipient has registered anew: what they write is read, and the change is noted before it.
            return e2ee.SessionRecord.respond(None, self._device.identity, first, signed, prekey, kyber)

    def _note_identity(self, delivery: Delivery, change: _Consequences) -> None:
        """The peer has registered with another key; a session that has this key already goes on."""
        record = self._store.at_hand(delivery.sender)
        before = record.remote_identity if record is not None else None
        if before is None or before != delivery.body:
            self._start_over(delivery.sender, change)
        if len(delivery.body) == IDENTITY_KEY:
            self._learn(delivery, delivery.body, change, before=before)

    def _learn(self, delivery: Delivery, key: bytes, change: _Consequences, *, before: bytes | None) -> None:
        learnt = Learnt()
        self._identities.learn(delivery.sender, key, learnt, before=before, subject=delivery.id)
        change.learnt.rows += learnt.rows
        change.learnt.changed += learnt.changed
        # Before the message that it was learnt from.
        change.callbacks += learnt.callbacks
        if learnt.changed and delivery.kind == frames.PREKEY:
            change.arrivals.start_over(delivery.sender)

    def _start_over(self, peer: str, change: _Consequences) -> None:
        """The peer has new keys: the next message opens a new session."""
        log.info("session.identity_changed", extra={"peer": peer})
        EVENTS.labels(frames.IDENTITY, "noted").inc()
        change.arrivals.start_over(peer)
        change.records.pop(peer, None)
        change.dropped.append(peer)
        self._store.forget(peer)


class _Consequences:
    """What one batch of deliveries changes."""

    def __init__(self, arrivals: Arrivals) -> None:
        self.arrivals = arrivals
        self.reached: list[Reached] = []
        self.messages: list[Message] = []
        self.records: dict[str, e2ee.SessionRecord] = {}
        self.dropped: list[str] = []
        self.used_prekeys: list[int] = []
        self.heard: dict[str, int] = {}
        self.unread: list[Unread] = []
        self.withdrawn: dict[str, list[str]] = {}
        self.callbacks: list[Callback] = []
        self.learnt = Learnt()
        self.downloads: list[Download] = []
        self.ended_downloads: list[str] = []


def _with_keys(deliveries: Sequence[Delivery]) -> Sequence[str]:
    """The senders of what tells an identity."""
    return list({delivery.sender for delivery in deliveries if delivery.kind in (frames.PREKEY, frames.IDENTITY)})


def _request_id(delivery: Delivery) -> str:
    """What the sender calls this message in logs, where it is fit for a header; empty for none."""
    return delivery.trace if _SANE_ID.fullmatch(delivery.trace) else ""


_counters = functools.cache(EVENTS.labels)


def _count(delivery: Delivery, outcome: str) -> None:
    """Only for the kinds that are known, so that there are few."""
    _counters(delivery.kind, outcome).inc()


def _subjects(delivery: Delivery) -> Sequence[str]:
    """The messages that a delivery is about; ids that none of ours or of the network's can be are left out."""
    found = delivery.refs if delivery.kind in STATUSES else (delivery.id,)
    return [message_id for message_id in found if 0 < len(message_id) <= MAX_ID and message_id.isascii()]
