"""The store of a fleet at work: a delivery is committed with what follows from it, then shown and acknowledged."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

from handset import errors
from handset.application import Application
from handset.devices.context import FleetContext
from handset.devices.device import Device
from handset.groups.groups import GroupWork, KeyWanted
from handset.groups.sender_keys import SenderKeyStore
from handset.receiving import duplicates, first_messages
from handset.receiving.batch import Batch
from handset.receiving.duplicates import RECEIVED, RecentMessages
from handset.receiving.first_messages import FirstMessages
from handset.receiving.inbox import HIDDEN, shown_after_restart
from handset.receiving.incoming import DeliveryHandler
from handset.receiving.items import Delivery, DeliveryOrigin, Item, OutgoingMessage, PeerKey
from handset.receiving.outgoing import MessageEncryptor
from handset.receiving.resending import SentMessages
from handset.receiving.sessions import DeviceSessions
from handset.sending.dispatcher import Dispatcher
from handset.sending.ids import ReceiptIds
from handset.sending.outbox import LastPositions
from tidings import e2ee
from tidings.runtime import crashpoints
from tidings.runtime.allowance import Allowance
from tidings.runtime.batcher import Batcher
from tidings.storage.database import Connection
from tidings.storage.handset import inbox, outbox, positions, prekeys, sent
from tidings.storage.handset.outbox import OutboxRow
from tidings.wire.device import GROUP, IDENTITY, MESSAGE, PREKEY, RETRY, Deliver

log = logging.getLogger(__name__)

PENDING_LIMIT = 30_000  # deliveries; beyond it the connection is dropped, and the network keeps them
CHORE_SECONDS = 0.5  # how long an accepted envelope may stay in the table
INBOX_DAYS = 45  # longer than the network keeps an envelope, so that none that comes again is forgotten
PAGE = 1000
MAX_ASKED = 500  # messages that one peer is asked for again in an hour

_CHORES = None
_BY_SESSION = (MESSAGE, PREKEY, IDENTITY, RETRY)

# (device, peer, has the peer answered on the session there is?)
RenewSession = Callable[[Device, str, bool], None]
# (peers whose key of a group we lack, peers who lack ours)
ExchangeKeys = Callable[[Sequence[KeyWanted], Sequence[KeyWanted]], None]


class Mailroom:
    """From `open` until its first failed commit, when it sets `failed` and does nothing any more.

    The owner then drops the connections and opens another one: what was not acknowledged comes again, and what had
    reached the disk is shown and sent by the new one.
    """

    def __init__(
        self,
        context: FleetContext,
        devices: Mapping[str, Device],
        application: Application,
        *,
        renew_session: RenewSession,
        exchange_keys: ExchangeKeys,
        positions: LastPositions,
        recent: RecentMessages,
        sent_messages: SentMessages,
    ) -> None:
        self.failed = asyncio.Event()
        self._context = context
        self._application = application
        self._renew_session = renew_session
        self._exchange_keys = exchange_keys
        self._positions = positions
        self._recent = recent
        self._sent_messages = sent_messages
        self._sessions = DeviceSessions(devices, context.vault)
        self._sender_keys = SenderKeyStore(context.vault)
        self._requests: Allowance[PeerKey] = Allowance(context.clock, limit=MAX_ASKED, period=3600.0, remembered=10_000)
        self._receipt_ids = ReceiptIds()
        self._dispatcher = Dispatcher(context.clock, limit=context.limits.outbox)
        self._chores: asyncio.TimerHandle | None = None
        self._shown = self._shown_saved = 0
        self._closing = False
        self._batcher: Batcher[Item, Any] = Batcher(
            "handset", self._flush, max_size=200, max_pending=PENDING_LIMIT, spacing=context.spacing
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
    ) -> Mailroom:
        """Load what was left: the outboxes into their devices, and show what is on disk and was not shown."""
        fleet, now = context.name, context.now()
        async with context.database.transaction() as connection:
            last_inbox, last_outbox, shown = await positions.find(connection, fleet)
            await inbox.delete_before(connection, fleet, now - INBOX_DAYS * 86_400_000, shown)
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
        opened._dispatcher.dispatch([(devices[e.number], e) for e in envelopes if e.number in devices])
        await opened._show_remaining(shown)
        opened._schedule_chores()
        for number, peer in sent_messages.waiting_for:
            if number in devices:
                renew_session(devices[number], peer, True)
        return opened

    @property
    def outstanding(self) -> int:
        """Envelopes that the network has not accepted."""
        return self._dispatcher.outstanding

    async def wait_until_sent(self) -> None:
        """Returns when the network has everything that was to be sent."""
        await self._dispatcher.wait_until_empty()

    def deliver(self, delivery: Delivery) -> bool:
        """Accept one delivery; false when too many wait already. Ignored after a failure."""
        if self.failed.is_set() or self._closing:
            return True
        if self._batcher.pending >= PENDING_LIMIT - PAGE:
            return False
        self._batcher.put(delivery)
        return True

    async def send(self, message: OutgoingMessage) -> str | None:
        """The id under which it is now in the outbox, `None` when there is no session and no bundle.

        Raises `NotStored`, and `e2ee.E2EEError` for a bundle that cannot be used.
        """
        result: str | e2ee.E2EEError | None = await self._submit(message)
        if isinstance(result, e2ee.E2EEError):
            raise result
        return result

    async def do(self, work: GroupWork) -> Any:
        """The result of the work, after the commit of the batch that it was a part of. Raises `NotStored`."""
        return await self._submit(work)

    async def _submit(self, item: OutgoingMessage | GroupWork) -> Any:
        if self.failed.is_set() or self._closing:
            raise errors.NotStored("the store is away")
        try:
            return await self._batcher.submit(item)
        except Exception as error:
            raise errors.NotStored(f"could not be stored: {error}") from error

    async def wait_until_gone(self, device: Device, message_ids: Collection[str]) -> None:
        """Returns when the network has these messages, or has refused them for good."""
        await self._dispatcher.wait_until_gone(device, message_ids)

    def accepted(self, positions: Iterable[int]) -> None:
        """These envelopes are out of memory; their rows go with one of the next commits."""
        self._dispatcher.settled(positions)
        self._schedule_chores()

    def postpone(self, device: Device, envelope: OutboxRow) -> None:
        """Offer an envelope again after a while."""
        self._dispatcher.postpone(device, envelope)

    def release_due(self) -> None:
        """Send what was held back until now."""
        self._dispatcher.release_due()

    async def close(self) -> None:
        """Commit what has arrived, and the chores."""
        self._closing = True
        self._dispatcher.close()
        if not self.failed.is_set():
            self._batcher.put(_CHORES)
        await self._batcher.close()
        if self._chores is not None:
            self._chores.cancel()

    async def _flush(self, items: Sequence[Item]) -> Sequence[Any]:
        await self._dispatcher.wait_for_room()
        if self.failed.is_set():
            raise errors.NotStored("an earlier commit failed")
        try:
            return await self._commit(items)
        except Exception as error:
            log.error(
                "store.failed", extra={"fleet": self._context.name, "items": len(items), "error": repr(error)[:300]}
            )
            self.failed.set()
            raise

    async def _commit(self, items: Sequence[Item]) -> list[Any]:
        batch = Batch(self._context, self._positions, self._receipt_ids)
        async with self._context.database.transaction() as connection:
            results = await self._work(connection, items, batch)
            envelopes = await self._save(connection, batch)
            chores = self._chores is None or any(item is _CHORES for item in items)
            done = await self._do_chores(connection) if chores else 0
        if chores:
            del self._dispatcher.accepted[:done]
        crashpoints.reach(crashpoints.AFTER_ROW_BEFORE_NETWORK_ACK)
        self._publish(items, batch, envelopes)
        return results

    async def _work(self, connection: Connection, items: Sequence[Item], batch: Batch) -> list[Any]:
        """Carry out the items in order; the result of each. Nothing that they change is written yet."""
        new, undecrypted = await duplicates.list_new(connection, items, self._recent)
        batch.inbox.expect(undecrypted)
        peers = {delivery.peer_key for delivery in new.values() if delivery.frame.kind in _BY_SESSION}
        peers.update(item.peer_key for item in items if isinstance(item, OutgoingMessage))
        await self._sessions.load(connection, peers, batch.sessions)
        named = await first_messages.load_prekeys(connection, new.values(), batch.sessions)
        by_sender_key = [delivery for delivery in new.values() if delivery.frame.kind == GROUP]
        await self._sender_keys.load(connection, {delivery.sender_key for delivery in by_sender_key})
        encryptor = MessageEncryptor(batch, self._sent_messages)
        handler = DeliveryHandler(
            batch,
            encryptor,
            first_messages=FirstMessages(self._context.vault, named, batch.used_prekeys),
            sender_keys=self._sender_keys,
            decide=self._application.actions,
            may_ask=self._requests.take,
        )
        results: list[Any] = []
        for item in items:
            result: Any = None
            if isinstance(item, Delivery):
                if new.get(item.key) is item:
                    await handler.handle(connection, item)
            elif isinstance(item, OutgoingMessage):
                try:
                    result = await encryptor.send(connection, item)
                except e2ee.E2EEError as error:
                    result = error
            elif item is not _CHORES:
                result = await item(self._sender_keys, connection, batch.outbox)
            results.append(result)
        return results

    async def _save(self, connection: Connection, batch: Batch) -> Sequence[tuple[Device, OutboxRow]]:
        """Write everything that a batch changes; the envelopes that go out once that is committed."""
        envelopes = batch.outbox.envelopes()
        await inbox.delete_unreadable(connection, batch.inbox.decrypted)
        await inbox.add(connection, batch.inbox.rows)
        await sent.add(connection, batch.sent)
        await self._sender_keys.save(connection)
        await self._sessions.save(connection, batch.sessions)
        await outbox.add(connection, [envelope for _, envelope in envelopes])
        if batch.used_prekeys:
            await prekeys.delete(connection, batch.used_prekeys)
        return envelopes

    def _publish(self, items: Sequence[Item], batch: Batch, envelopes: Sequence[tuple[Device, OutboxRow]]) -> None:
        """Everything that may be seen outside only after the commit."""
        for row in batch.inbox.rows:
            self._recent.add((row.number, row.peer, row.id))
        self._sessions.keep(batch.sessions)
        for event in batch.events:
            self._application.notify(event)
        if batch.shown:
            self._application.show(batch.shown)
            RECEIVED.labels("shown").inc(len(batch.shown))
        self._shown = self._positions.inbox
        _acknowledge(items)
        self._dispatcher.dispatch(envelopes)
        for item in items:
            if isinstance(item, OutgoingMessage) and item.new_session:
                self._dispatcher.hasten(item.device, item.peer, RETRY)
        for renewal in batch.to_renew:
            self._renew_session(*renewal)
        self._exchange_keys(batch.to_ask, batch.to_give)
        if self._has_chores:
            self._schedule_chores()

    async def _show_remaining(self, after: int) -> None:
        """Show what was committed after this position and, by the application's own record, not shown."""
        self._shown = self._shown_saved = after
        while True:
            async with self._context.database.reading() as connection:
                rows = await inbox.list_messages(connection, self._context.name, after, PAGE)
            messages = [shown_after_restart(row, self._context.vault) for row in rows if row.kind not in HIDDEN]
            if messages:
                shown = self._application.list_shown(messages)
                remaining = [message for message in messages if (message.number, message.id) not in shown]
                if remaining:
                    fields = {"fleet": self._context.name, "messages": len(remaining)}
                    log.info("messages.shown_after_restart", extra=fields)
                    self._application.show(remaining)
            if not rows:
                return
            after = self._shown = rows[-1].position

    # Chores: rows that may go, and how far was shown. They go with a commit that comes anyway, or after a while.

    @property
    def _has_chores(self) -> bool:
        return bool(self._dispatcher.accepted) or self._shown != self._shown_saved

    async def _do_chores(self, connection: Connection) -> int:
        """How many rows of accepted envelopes went."""
        accepted = list(self._dispatcher.accepted)
        if accepted:
            await outbox.delete(connection, self._context.name, accepted)
        await self._sent_messages.prune(connection, self._positions.outbox)
        if self._shown != self._shown_saved:
            await positions.save_shown(connection, self._context.name, self._shown)
            self._shown_saved = self._shown
        return len(accepted)

    def _schedule_chores(self) -> None:
        if self._chores is None and not self._closing:
            self._chores = asyncio.get_running_loop().call_later(CHORE_SECONDS, self._request_chores)

    def _request_chores(self) -> None:
        """Nothing to do if a batch is waiting: it takes the chores along."""
        self._chores = None
        if not self._closing and not self.failed.is_set() and not self._batcher.pending and self._has_chores:
            self._batcher.put(_CHORES)


def _acknowledge(items: Iterable[Item]) -> None:
    """One acknowledgement for each connection."""
    frames: dict[DeliveryOrigin, list[Deliver]] = {}
    for item in items:
        if isinstance(item, Delivery):
            frames.setdefault(item.origin, []).append(item.frame)
    for origin, acknowledged in frames.items():
        origin.acknowledge(acknowledged)
