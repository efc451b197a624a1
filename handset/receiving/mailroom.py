"""The store of a fleet at work: a delivery is committed with what follows from it, then shown and acknowledged."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

from handset import application, errors
from handset.application import Application
from handset.devices.device import Device
from handset.devices.vault import Vault
from handset.groups.groups import StoreWork
from handset.groups.sender_keys import SenderKeyStore
from handset.receiving import batch
from handset.receiving.batch import Item
from handset.receiving.duplicates import Seen
from handset.receiving.incoming import RECEIVED, Digest, PeerKey
from handset.receiving.items import Acknowledging, Arrival, Outgoing, Step
from handset.receiving.resending import KEPT, KEPT_MS, Repeats
from handset.receiving.sessions import Sessions
from handset.sending import ids
from handset.sending.dispatcher import Dispatch
from handset.sending.outbox import OutboxBatch, Positions
from tidings import e2ee
from tidings.runtime import crashpoints
from tidings.runtime.allowance import Allowance
from tidings.runtime.batcher import Batcher
from tidings.runtime.clock import Clock
from tidings.storage.database import Database
from tidings.storage.handset import inbox, outbox, positions, prekeys
from tidings.storage.handset import sent as handset_sent
from tidings.storage.handset.sent import Sent
from tidings.wire import content
from tidings.wire import device as wire

log = logging.getLogger(__name__)

SEEN_IN_MEMORY = 50_000  # keys; older ones are looked up in the inbox
PENDING_LIMIT = 30_000  # deliveries; beyond it the connection is dropped, and the network keeps them
SPACING = 0.05  # seconds between two commits of a steady stream
CHORE_SECONDS = 0.5  # how long an accepted envelope may stay in the table
INBOX_DAYS = 45  # longer than the network keeps an envelope, so that none that comes again is forgotten
PAGE = 1000
MAX_ASKED = 500  # messages that one peer is asked for again in an hour

_HIDDEN = (inbox.EMPTY, inbox.UNREADABLE, inbox.CONTROL)
_CHORES = None

# (peers whose key of a group we lack, peers who lack ours): (device, peer, group) each
KeysWanted = Callable[[Sequence[tuple[Device, str, str]], Sequence[tuple[Device, str, str]]], None]


class Mailroom:
    """From `open` until its first failed commit, when it sets `failed` and does nothing any more.

    The owner then drops the connections and opens another one: what was not acknowledged comes again, and what had
    reached the disk is shown and sent by the new one.
    """

    def __init__(
        self,
        database: Database,
        fleet: str,
        devices: Mapping[str, Device],
        vault: Vault,
        application: Application,
        clock: Clock,
        heal: Callable[[Device, str, bool], None],
        keys_wanted: KeysWanted,
        positions: Positions,
        seen: Seen,
        waiting: Sequence[Sent],
    ) -> None:
        self._database = database
        self._fleet = fleet
        self._devices = devices
        self._vault = vault
        self._application = application
        self._clock = clock
        self._heal = heal
        self._keys_wanted = keys_wanted
        self._positions = positions
        self._seen = seen
        self._sessions = Sessions(devices, vault)
        self._sender_keys = SenderKeyStore(vault)
        self._repeats = Repeats(fleet, vault, waiting, positions.outbox)
        self._requests: Allowance[PeerKey] = Allowance(clock, limit=MAX_ASKED, period=3600.0, remembered=10_000)
        self._receipt_ids = ids.Sequence()
        self._dispatch = Dispatch(clock)
        self._chores: asyncio.TimerHandle | None = None
        self._shown = 0
        self._shown_saved = 0
        self._closing = False
        self.failed = asyncio.Event()
        self._batcher: Batcher[Item, Any] = Batcher(
            "handset", self._flush, max_size=200, max_pending=PENDING_LIMIT, spacing=SPACING
        )

    @classmethod
    async def open(
        cls,
        database: Database,
        fleet: str,
        devices: Mapping[str, Device],
        vault: Vault,
        application: Application,
        clock: Clock,
        heal: Callable[[Device, str, bool], None],
        keys_wanted: KeysWanted,
    ) -> Mailroom:
        """Load what was left: the outboxes into their devices, and show what is on disk and was not shown."""
        async with database.transaction() as connection:
            received, sent, shown = await positions.find(connection, fleet)
            await inbox.delete_before(connection, fleet, int(clock.now() * 1000) - INBOX_DAYS * 86_400_000, shown)
            recent = await inbox.list_recent(connection, fleet, SEEN_IN_MEMORY)
            envelopes = await outbox.list_envelopes(connection, fleet)
            old = int(clock.now() * 1000) - KEPT_MS
            await handset_sent.delete_old(connection, fleet, before=old, position=sent - KEPT)
            waiting = await handset_sent.list_waiting(connection, fleet)
        mailroom = cls(
            database,
            fleet,
            devices,
            vault,
            application,
            clock,
            heal,
            keys_wanted,
            Positions(max(received, shown), sent),
            Seen(recent, SEEN_IN_MEMORY),
            waiting,
        )
        for device in devices.values():
            device.outbox.clear()
        mailroom._dispatch.post([(devices[e.number], e) for e in envelopes if e.number in devices])
        mailroom._shown = mailroom._shown_saved = shown
        await mailroom._show_left(shown)
        mailroom._schedule_chores()
        for number, peer in mailroom._repeats.peers:
            if number in devices:
                heal(devices[number], peer, True)
        return mailroom

    @property
    def outstanding(self) -> int:
        """Envelopes that the network has not accepted."""
        return self._dispatch.outstanding

    async def wait_until_sent(self) -> None:
        """Returns when the network has everything that was to be sent."""
        await self._dispatch.wait_until_empty()

    def arrived(self, arrival: Arrival) -> bool:
        """Take one delivery; false when there are too many already. Nothing is taken after a failure."""
        if self.failed.is_set() or self._closing:
            return True
        if self._batcher.pending >= PENDING_LIMIT - PAGE:
            return False
        self._batcher.put(arrival)
        return True

    async def send(self, outgoing: Outgoing) -> str | None:
        """The id under which it is now in the outbox, `None` when there is no session and no bundle.

        Raises `NotStored`, and `e2ee.E2EEError` for a bundle that cannot be used.
        """
        result: str | e2ee.E2EEError | None = await self._submit(outgoing)
        if isinstance(result, e2ee.E2EEError):
            raise result
        return result

    async def do(self, work: StoreWork) -> Any:
        """What the work returns, after the commit of the batch that it was a part of. Raises `NotStored`."""
        return await self._submit(Step(work))

    async def _submit(self, item: Outgoing | Step) -> Any:
        if self.failed.is_set() or self._closing:
            raise errors.NotStored("the store is away")
        try:
            return await self._batcher.submit(item)
        except Exception as error:
            raise errors.NotStored(f"could not be stored: {error}") from error

    async def wait_until_gone(self, device: Device, message_ids: Collection[str]) -> None:
        """Returns when the network has these messages, or has refused them for good."""
        await self._dispatch.wait_until_gone(device, message_ids)

    def accepted(self, positions: Iterable[int]) -> None:
        """These envelopes are out of memory; their rows go with one of the next commits."""
        self._dispatch.settled(positions)
        self._schedule_chores()

    def postpone(self, device: Device, envelope: outbox.OutboxRow) -> None:
        """Offer an envelope again after a while."""
        self._dispatch.postpone(device, envelope)

    def release_due(self) -> None:
        """Send what was held back until now."""
        self._dispatch.release_due()

    async def close(self) -> None:
        """Commit what has arrived, and the chores."""
        self._closing = True
        self._dispatch.close()
        if not self.failed.is_set():
            self._batcher.put(_CHORES)
        await self._batcher.close()
        if self._chores is not None:
            self._chores.cancel()

    async def _flush(self, items: Sequence[Item]) -> Sequence[Any]:
        await self._dispatch.wait_for_room()
        if self.failed.is_set():
            raise errors.NotStored("an earlier commit failed")
        try:
            return await self._commit(items)
        except Exception as error:
            log.error("store.failed", extra={"fleet": self._fleet, "items": len(items), "error": repr(error)[:300]})
            self.failed.set()
            raise

    async def _commit(self, items: Sequence[Item]) -> list[Any]:
        digest = Digest(
            self._fleet,
            self._vault,
            self._sender_keys,
            self._repeats,
            self._application.actions,
            self._requests.take,
            self._positions,
            OutboxBatch(self._fleet, self._vault, self._positions, self._receipt_ids, self._clock.now()),
        )
        accepted, shown = self._dispatch.accepted, self._shown
        results: list[Any] = []
        async with self._database.transaction() as connection:
            fresh = batch.not_seen(items, self._seen)
            if fresh and not self._seen.complete:
                asked = [key[2] for key, arrival in fresh.items() if not batch.is_repetition(arrival)]
                for key in await inbox.list_known(connection, asked):
                    if key in fresh and not batch.is_repetition(fresh[key]):
                        del fresh[key]
            await batch.recognise(connection, fresh, digest)
            await self._sessions.load(connection, batch.peers_of(fresh.values(), items), digest)
            named = batch.prekeys_of(fresh.values(), digest)
            if named:
                rows = await prekeys.list_prekeys(connection, named)
                digest.first_messages.prekeys = {(row.number, row.key_id): row for row in rows}
            await self._sender_keys.load(connection, batch.sender_keys_of(fresh.values()))

            for item in items:
                if isinstance(item, Arrival):
                    if fresh.get(batch.key_of(item)) is item:
                        digest.receive(item)
                        while digest.work:
                            await digest.work.pop(0)(connection)
                    results.append(None)
                elif isinstance(item, Step):
                    results.append(await item.work(self._sender_keys, connection, digest.outbox))
                elif item is not None:
                    results.append(_send(digest, item))
                    if item.anew and isinstance(results[-1], str):
                        await digest.release(connection, device=item.device, peer=item.peer)
                else:
                    results.append(None)

            envelopes = digest.outbox.envelopes()
            await inbox.delete_unreadable(connection, digest.readable)
            await inbox.add(connection, digest.messages)
            await handset_sent.add(connection, digest.sent)
            await self._sender_keys.save(connection)
            await self._sessions.save(connection, digest)
            await outbox.add(connection, [envelope for _, envelope in envelopes])
            if digest.first_messages.used:
                await prekeys.delete(connection, digest.first_messages.used)
            chores = self._chores is None or any(item is _CHORES for item in items)
            done = len(accepted) if chores else 0
            if done:
                await outbox.delete(connection, self._fleet, accepted[:done])
            if chores:
                await self._repeats.prune(connection, self._positions.outbox)
            if chores and shown != self._shown_saved:
                await positions.save_shown(connection, self._fleet, shown)
        if chores:
            del accepted[:done]
            self._shown_saved = shown
        crashpoints.reach(crashpoints.AFTER_ROW_BEFORE_NETWORK_ACK)
        self._publish(items, digest, envelopes)
        return results

    def _publish(
        self, items: Sequence[Item], digest: Digest, envelopes: Sequence[tuple[Device, outbox.OutboxRow]]
    ) -> None:
        """What may be seen outside only after the commit."""
        for stored in digest.messages:
            self._seen.add((stored.number, stored.peer, stored.id))
        self._sessions.keep(digest)
        for event in digest.events:
            self._application.notify(event)
        if digest.shown:
            self._application.show(digest.shown)
            RECEIVED.labels("shown").inc(len(digest.shown))
        self._shown = self._positions.inbox
        arrived: dict[Acknowledging, list[wire.Deliver]] = {}
        for item in items:
            if isinstance(item, Arrival):
                arrived.setdefault(item.origin, []).append(item.frame)
        for origin, deliveries in arrived.items():
            origin.acknowledge(deliveries)
        self._dispatch.post(envelopes)
        for item in items:
            if isinstance(item, Outgoing) and item.anew:
                self._dispatch.hasten(item.device, item.peer, wire.RETRY)
        for device, peer, answered in digest.to_heal:
            self._heal(device, peer, answered)
        self._keys_wanted(digest.to_ask, digest.to_give)
        if self._dispatch.accepted or self._shown != self._shown_saved:
            self._schedule_chores()

    async def _show_left(self, after: int) -> None:
        """Show what was committed and, by the application's own record, not shown."""
        while True:
            async with self._database.reading() as connection:
                rows = await inbox.list_messages(connection, self._fleet, after, PAGE)
            messages = [_message(m) for m in rows if m.kind not in _HIDDEN]
            if messages:
                shown = self._application.list_shown(messages)
                left = [message for message in messages if (message.number, message.id) not in shown]
                if left:
                    log.info("messages.shown_after_restart", extra={"fleet": self._fleet, "messages": len(left)})
                    self._application.show(left)
            if not rows:
                return
            after = self._shown = rows[-1].position

    def _schedule_chores(self) -> None:
        if self._chores is None and not self._closing:
            self._chores = asyncio.get_running_loop().call_later(CHORE_SECONDS, self._do_chores)

    def _do_chores(self) -> None:
        """Nothing to do if a batch is waiting: it takes the chores along."""
        self._chores = None
        if self._closing or self.failed.is_set() or self._batcher.pending:
            return
        if self._dispatch.accepted or self._shown != self._shown_saved:
            self._batcher.put(_CHORES)


def _message(row: inbox.InboxRow) -> application.ReceivedMessage:
    """As it is shown when it was not shown before a restart."""
    kind, text, raw = row.kind, "", row.content
    if kind == inbox.TEXT:
        text, raw = raw, ""
    elif kind == inbox.ANSWER:
        kind, text = inbox.TEXT, content.text_of(raw)
    return application.ReceivedMessage(
        row.number, row.peer, row.id, row.position, 1, row.received_at, kind, text, raw, row.group
    )


def _send(digest: Digest, outgoing: Outgoing) -> str | e2ee.E2EEError | None:
    try:
        return digest.send(outgoing)
    except e2ee.E2EEError as error:
        return error
