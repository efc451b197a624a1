"""Store of a running fleet: commits a delivery with its effects, then shows and acknowledges it."""

from __future__ import annotations

import asyncio
import dataclasses
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from handset import errors
from handset.application import Application, ReceivedMessage
from handset.devices.context import FleetContext
from handset.devices.device import Device
from handset.receiving import duplicates, first_messages
from handset.receiving.batch import InboundBatch
from handset.receiving.duplicates import RECEIVED, RecentMessages
from handset.receiving.first_messages import FirstMessages
from handset.receiving.inbox import shown_after_restart
from handset.receiving.incoming import DeliveryHandler
from handset.receiving.items import Delivery, DeliveryOrigin, GroupWork, Item, KeyWanted, OutgoingMessage, PeerKey
from handset.receiving.outgoing import MessageEncryptor
from handset.receiving.resending import SentMessages
from handset.receiving.sender_keys import SenderKeyStore
from handset.receiving.sessions import DeviceSessions
from handset.sending.dispatcher import Dispatcher
from handset.sending.outbox import LastPositions, ReceiptIds
from tidings import e2ee
from tidings.aio import crashpoints
from tidings.aio.batcher import Batcher
from tidings.aio.use_limit import UseLimit
from tidings.storage.database import Connection
from tidings.storage.handset import inbox, outbox, prekeys, sent
from tidings.storage.handset.base_keys import BASE_KEYS
from tidings.storage.handset.inbox import InboxRow
from tidings.storage.handset.outbox import OutboxRow
from tidings.wire.device import GROUP, IDENTITY, MESSAGE, PREKEY, RETRY, TRANSIENT, Deliver

log = logging.getLogger(__name__)

PENDING_LIMIT = 30_000  # deliveries; above it the connection is dropped, and the network keeps them
MAINTENANCE_SECONDS = 0.5  # seconds that the row of an accepted envelope stays at most
INBOX_MS = 45 * 86_400_000  # milliseconds; longer than the network keeps an envelope, to detect every redelivery
EXPIRY_SECONDS = 3600.0  # seconds between two deletions of older messages
PAGE = 1000
MAX_ASKED = 500  # messages that are requested again from one peer per hour

_MAINTENANCE = None
_BY_SESSION = (MESSAGE, PREKEY, IDENTITY, RETRY, TRANSIENT)

# Arguments: device, peer, and whether the peer has replied on the present session.
RenewSession = Callable[[Device, str, bool], None]
# Arguments: peers whose sender key of a group we lack, and peers that lack ours.
ExchangeKeys = Callable[[Sequence[KeyWanted], Sequence[KeyWanted]], None]


@dataclasses.dataclass(eq=False, repr=False)
class MessageStore:
    """Store of a fleet, in use from `open` until its first failed commit, when it sets `failed` and stops working.

    The owner then drops the connections and opens another message store. Unacknowledged deliveries come again, and the
    new message store shows and sends everything that was committed.
    """

    context: FleetContext
    devices: Mapping[str, Device]
    application: Application
    _: dataclasses.KW_ONLY
    renew_session: RenewSession
    exchange_keys: ExchangeKeys
    positions: LastPositions
    recent: RecentMessages
    sent_messages: SentMessages

    def __post_init__(self) -> None:
        self.failed = asyncio.Event()
        self._sessions = DeviceSessions(self.devices, self.context.sealer)
        self._sender_keys = SenderKeyStore(self.context.sealer)
        self._requests: UseLimit[PeerKey] = UseLimit(
            self.context.clock, limit=MAX_ASKED, period=3600.0, remembered=10_000
        )
        self._receipt_ids = ReceiptIds()
        self.dispatcher = Dispatcher(self.context.clock, limit=self.context.limits.outbox)
        self._maintenance_timer: asyncio.TimerHandle | None = None
        self._shown = self._shown_saved = 0
        self._expired_at = self.context.clock.monotonic()  # time of the last deletion of old messages
        self._closing = False
        self._batcher: Batcher[Item, Any] = Batcher(
            "handset", self._flush, max_size=200, max_pending=PENDING_LIMIT, spacing=self.context.spacing
        )

    @classmethod
    async def open(
        cls,
        context: FleetContext,
        devices: Mapping[str, Device],
        application: Application,
        *,
        renew_session: RenewSession,
        exchange_keys: ExchangeKeys,
    ) -> MessageStore:
        """Open the store: load the outboxes into their devices, and show committed messages that were not shown."""
        fleet, now = context.name, context.now()
        async with context.database.transaction() as connection:
            last_inbox, last_outbox, shown = await inbox.find(connection, fleet)
            await inbox.save_sent(connection, fleet, last_outbox)
            await inbox.delete_before(connection, fleet, now - INBOX_MS, shown)
            recent = await inbox.list_recent(connection, fleet, context.limits.recent)
            envelopes = await outbox.list_envelopes(connection, fleet)
            sent_messages = await SentMessages.load(connection, context, last_outbox)
        opened = cls(
            context,
            devices,
            application,
            renew_session=renew_session,
            exchange_keys=exchange_keys,
            positions=LastPositions(max(last_inbox, shown), last_outbox),
            recent=RecentMessages(recent, context.limits.recent),
            sent_messages=sent_messages,
        )
        for device in devices.values():
            device.outbox.clear()
        opened.dispatcher.dispatch([(devices[e.number], e) for e in envelopes if e.number in devices])
        await opened._show_remaining(shown)
        opened._schedule_maintenance()
        for number, peer in sent_messages.waiting_for:
            if number in devices:
                renew_session(devices[number], peer, True)
        return opened

    def deliver(self, delivery: Delivery) -> bool:
        """Queue a delivery. Returns false when too many wait already. Deliveries after a failure are ignored."""
        if self.failed.is_set() or self._closing:
            return True
        if self._batcher.pending >= PENDING_LIMIT - PAGE:
            return False
        self._batcher.put(delivery)
        return True

    async def send(self, message: OutgoingMessage) -> str | None:
        """Add a message to the outbox. Returns its id, or `None` when there is no session and no bundle.

        Raises `NotStored`, and `e2ee.E2EEError` for a bundle that cannot be used.
        """
        result: str | e2ee.E2EEError | None = await self._submit(message)
        if isinstance(result, e2ee.E2EEError):
            raise result
        return result

    async def do(self, work: GroupWork) -> Any:
        """Execute work as part of a batch, and return its result after the commit. Raises `NotStored`."""
        return await self._submit(work)

    async def _submit(self, item: OutgoingMessage | GroupWork) -> Any:
        if self.failed.is_set() or self._closing:
            raise errors.NotStored("the store is unavailable")
        try:
            return await self._batcher.submit(item)
        except Exception as error:
            raise errors.NotStored(f"could not be stored: {error}") from error

    def accepted(self, positions: Iterable[int]) -> None:
        """Count envelopes as finished. Their rows are deleted with one of the next commits."""
        self.dispatcher.settled(positions)
        self._schedule_maintenance()

    async def close(self) -> None:
        """Commit the queued items, and do the maintenance tasks."""
        self._closing = True
        self.dispatcher.close()
        if not self.failed.is_set():
            self._batcher.put(_MAINTENANCE)
        await self._batcher.close()
        if self._maintenance_timer is not None:
            self._maintenance_timer.cancel()

    async def _flush(self, items: Sequence[Item]) -> Sequence[Any]:
        await self.dispatcher.wait_for_room()
        if self.failed.is_set():
            raise errors.NotStored("an earlier commit failed")
        try:
            return await self._commit(items)
        except Exception as error:
            self._fail("store.failed", items, error)
            raise

    def _fail(self, event: str, items: Sequence[Item], error: Exception) -> None:
        log.error(event, extra={"fleet": self.context.name, "items": len(items), "error": repr(error)[:300]})
        self.failed.set()

    async def _commit(self, items: Sequence[Item]) -> list[Any]:
        batch = InboundBatch(self.context, self.positions, self._receipt_ids)
        async with self.context.database.transaction() as connection:
            results = await self._work(connection, items, batch)
            envelopes = await self._save(connection, batch)
            is_due = self._maintenance_timer is None or any(item is _MAINTENANCE for item in items)
            done = await self._maintain(connection) if is_due else 0
        if is_due:
            del self.dispatcher.accepted[:done]
        crashpoints.reach(crashpoints.AFTER_ROW_BEFORE_NETWORK_ACK)
        try:
            self._publish(items, batch, envelopes)
        except Exception as error:
            # All is on disk: the next message store shows the messages and sends the envelopes.
            self._fail("store.not_shown", items, error)
        return results

    async def _work(self, connection: Connection, items: Sequence[Item], batch: InboundBatch) -> list[Any]:
        """Process the items in order, and return their results. No change is written yet."""
        new, undecrypted = await duplicates.list_new(connection, items, self.recent)
        batch.inbox.expect(undecrypted)
        peers = {delivery.peer_key for delivery in new if delivery.frame.kind in _BY_SESSION}
        peers.update(item.peer_key for item in items if isinstance(item, OutgoingMessage))
        await self._sessions.load(connection, peers, batch.sessions)
        named = await first_messages.load_prekeys(connection, new, batch.sessions)
        accepted = await first_messages.load_base_keys(connection, new)
        by_sender_key = [delivery for delivery in new if delivery.frame.kind == GROUP]
        await self._sender_keys.load(connection, {delivery.sender_key for delivery in by_sender_key})
        encryptor = MessageEncryptor(batch, self.sent_messages)
        handler = DeliveryHandler(
            batch,
            encryptor,
            first_messages=FirstMessages(self.context.sealer, named, accepted=accepted, batch=batch),
            sender_keys=self._sender_keys,
            decide=self.application.actions,
            may_request=self._requests.take,
        )
        results: list[Any] = []
        unhandled = set(new)
        for item in items:
            result: Any = None
            if isinstance(item, Delivery):
                if item in unhandled:
                    await handler.handle(connection, item)
            elif isinstance(item, OutgoingMessage):
                try:
                    result = await encryptor.send(connection, item)
                except e2ee.E2EEError as error:
                    result = error
            elif item is not _MAINTENANCE:
                result = await item(self._sender_keys, connection, batch.outbox)
            results.append(result)
        return results

    async def _save(self, connection: Connection, batch: InboundBatch) -> Sequence[tuple[Device, OutboxRow]]:
        """Write all changes of a batch. Returns the envelopes to send after the commit."""
        envelopes = batch.outbox.envelopes()
        await inbox.delete_unreadable(connection, batch.inbox.decrypted)
        await inbox.add(connection, batch.inbox.rows)
        await sent.add(connection, batch.sent)
        await self._sender_keys.save(connection)
        await self._sessions.save(connection, batch.sessions)
        await outbox.add(connection, [envelope for _, envelope in envelopes])
        await BASE_KEYS.add(connection, batch.base_keys)
        if batch.used_prekeys:
            await prekeys.delete(connection, batch.used_prekeys)
        return envelopes

    def _publish(
        self, items: Sequence[Item], batch: InboundBatch, envelopes: Sequence[tuple[Device, OutboxRow]]
    ) -> None:
        """Apply all effects that must not be visible before the commit."""
        for row in batch.inbox.rows:
            self.recent.add((row.number, row.peer, row.id))
        self._sessions.keep(batch.sessions)
        for event in batch.events:
            self.application.notify(event)
        if batch.shown:
            self.application.show(batch.shown)
            RECEIVED.labels("shown").inc(len(batch.shown))
        self._shown = self.positions.inbox
        _acknowledge(items)
        self.dispatcher.dispatch(envelopes)
        for item in items:
            if isinstance(item, OutgoingMessage) and item.new_session:
                self.dispatcher.send_delayed(item.device, item.peer, RETRY)
        for renewal in batch.to_renew:
            self.renew_session(*renewal)
        self.exchange_keys(batch.keys_to_request, batch.keys_to_send)
        if self._has_maintenance:
            self._schedule_maintenance()

    async def _show_remaining(self, after: int) -> None:
        """Show messages that were committed after this position and, by the application's record, were not shown."""
        self._shown = self._shown_saved = after
        while True:
            async with self.context.database.reading() as connection:
                rows = await inbox.list_messages(connection, self.context.name, after, PAGE)
            messages = list(self._readable(rows))
            if messages:
                shown = self.application.list_shown(messages)
                remaining = [message for message in messages if (message.number, message.id) not in shown]
                if remaining:
                    fields = {"fleet": self.context.name, "messages": len(remaining)}
                    log.info("messages.shown_after_restart", extra=fields)
                    self.application.show(remaining)
            if not rows:
                return
            after = self._shown = rows[-1].position

    def _readable(self, rows: Iterable[InboxRow]) -> Iterator[ReceivedMessage]:
        """Yield the messages of these rows. One that cannot be opened is given up."""
        for row in rows:
            if row.kind in inbox.HIDDEN:
                continue
            try:
                yield shown_after_restart(row, self.context.sealer)
            except e2ee.CorruptState as error:
                log.error("inbox.corrupt", extra={"number": row.number, "message_id": row.id, "error": str(error)})

    # Maintenance tasks: deleting rows and storing the last shown position. They are part of the next commit, or of a
    # separate one after `MAINTENANCE_SECONDS`.

    @property
    def _has_maintenance(self) -> bool:
        return bool(self.dispatcher.accepted) or self._shown != self._shown_saved

    async def _maintain(self, connection: Connection) -> int:
        """Execute the maintenance tasks. Returns the number of deleted rows of accepted envelopes."""
        accepted = list(self.dispatcher.accepted)
        if accepted:
            await outbox.delete(connection, self.context.name, accepted)
        await self.sent_messages.prune(connection, self.positions.outbox)
        if self.context.clock.monotonic() - self._expired_at >= EXPIRY_SECONDS:
            await inbox.delete_before(connection, self.context.name, self.context.now() - INBOX_MS, self._shown)
            self._expired_at = self.context.clock.monotonic()
        if self._shown != self._shown_saved:
            await inbox.save_shown(connection, self.context.name, self._shown)
            self._shown_saved = self._shown
        return len(accepted)

    def _schedule_maintenance(self) -> None:
        if self._maintenance_timer is None and not self._closing:
            self._maintenance_timer = asyncio.get_running_loop().call_later(
                MAINTENANCE_SECONDS, self._request_maintenance
            )

    def _request_maintenance(self) -> None:
        """Queue the maintenance tasks, unless a batch is waiting, which includes them."""
        self._maintenance_timer = None
        if not self._closing and not self.failed.is_set() and not self._batcher.pending and self._has_maintenance:
            self._batcher.put(_MAINTENANCE)


def _acknowledge(items: Iterable[Item]) -> None:
    """Send one acknowledgement per connection."""
    frames: dict[DeliveryOrigin, list[Deliver]] = {}
    for item in items:
        if isinstance(item, Delivery):
            frames.setdefault(item.origin, []).append(item.frame)
    for origin, acknowledged in frames.items():
        origin.acknowledge(acknowledged)
