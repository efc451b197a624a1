"""Inbox of one shard: receipts, messages and notices from the network are committed, then acknowledged.

Deliveries that arrive during a commit form the next batch, for which receipts are collected in a process with several
shards. A batch that takes long is committed in parts, so that heartbeats and requests are served in between. From then
on deliveries, including new ones, are handled round robin over their senders. Duplicates (receipts by message and
status, messages by id) are recognised and only acknowledged.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import functools
import logging
import time
from collections.abc import Callable, Mapping, Sequence

from coreapp.context import ShardContext
from coreapp.crash_suspects import attach_suspects
from coreapp.groups import cross_shard
from coreapp.groups.arrivals import Arrivals
from coreapp.groups.wiring import ShardGroups
from coreapp.journal.change import Change
from coreapp.journal.session_rows import UsedPreKey
from coreapp.media.wiring import ShardMedia
from coreapp.peers.wiring import ShardPeers
from coreapp.receiving import delivery_order, inspection
from coreapp.receiving.catch_up import CatchUp
from coreapp.receiving.decryption import Decryption
from coreapp.receiving.effects import BatchEffects
from coreapp.receiving.inbound_messages import InboundMessages
from coreapp.receiving.key_changes import KeyChanges
from coreapp.receiving.set_ups import SetUps
from coreapp.receiving.work_budget import WorkBudget
from coreapp.recovery.control_messages import ControlMessage
from coreapp.recovery.wiring import Recovery
from coreapp.statuses.wiring import Statuses
from coreapp.webhook import events, inbound
from coreapp.webhook.direct_posts import DirectBatch
from tidings.aio import crashpoints
from tidings.aio.batcher import Batcher
from tidings.storage import outages
from tidings.storage.business import messages, quarantine
from tidings.storage.business.callback_history import EndedAttempt
from tidings.storage.business.callbacks import Callback
from tidings.storage.business.group_changes import GroupChanges
from tidings.storage.business.messages import Status
from tidings.storage.business.quarantine import ItemKind
from tidings.wire import codes, device
from tidings.wire.device import Deliver

log = logging.getLogger(__name__)

# A batch is committed in part once it has occupied the event loop for this many seconds. The most expensive delivery of
# a hostile peer, a message far ahead in its session, adds about 0.1 s, and its work budget allows one.
ITERATION_SECONDS = 0.1
HELD_SECONDS = 0.05  # seconds until a message whose key may still arrive is tried again
PAUSE_SECONDS = 0.02  # seconds for other work between two such parts
SMALL_PART = 10  # deliveries that are handled at once even while the shard catches up
FEW_REFS = 20  # ids kept of an envelope whose sender has exhausted the work budget
EXPIRED = (codes.EXPIRED, "the message was not delivered within its time to live")
_MESSAGES = (device.PREKEY, device.MESSAGE, device.GROUP)

# Handles one delivery by adding to the effects of the batch. It must not wait.
Handler = Callable[[Deliver, BatchEffects], None]


@dataclasses.dataclass(eq=False, repr=False)
class Inbox:
    """Inbound side of one shard."""

    context: ShardContext
    statuses: Statuses
    _: dataclasses.KW_ONLY
    peers: ShardPeers
    media: ShardMedia
    groups: ShardGroups
    recovery: Recovery

    def __post_init__(self) -> None:
        self._work_budget = WorkBudget(self.context.clock)
        self._set_ups = SetUps(self.context)
        key_changes = KeyChanges(self.peers.sessions, self.peers.identities)
        messages = InboundMessages(
            self.context,
            Decryption(
                self.context.device,
                self.peers.sessions,
                key_changes,
                set_ups=self._set_ups,
                work_budget=self._work_budget,
            ),
            self.peers.identities,
            downloads=self.media.downloads,
            recovery=self.recovery,
            tracker=self.statuses.tracker,
        )
        self._handlers: Mapping[str, Handler] = {
            **dict.fromkeys(inspection.STATUSES, self._note_receipt),
            **dict.fromkeys(_MESSAGES, messages.receive),
            device.GROUP_CHANGED: self._note_group_change,
            device.IDENTITY: key_changes.note,
            device.RETRY: self._send_again,
            **dict.fromkeys(cross_shard.FOR_FIRST, _handle_cross_shard_message),
        }
        # Bounded by the network's window of unacknowledged deliveries.
        self._batcher: Batcher[Deliver, None] = Batcher("events", self._flush, max_size=500, max_in_flight=1)
        self._catch_up = CatchUp(self.context.clock)
        self._receipt_spacing = self.context.shared.receipt_spacing
        self._receipt_spacing.join(self)
        # Deliveries of started batches that are not on disk, in the order of their commits.
        self._in_flight: Sequence[Deliver] = ()
        # By delivery id: completed when the delivery's own effects are on disk, which may be after those of its batch.
        self._awaited: dict[str, asyncio.Future[None]] = {}
        # Statuses of the batch being handled that are posted before its commit.
        self._posted: DirectBatch | None = None
        self._is_closed = False

    @property
    def pending(self) -> int:
        """Messages of recipients that have arrived and are not on disk yet."""
        return sum(delivery.kind in _MESSAGES for delivery in (*self._in_flight, *self._batcher.waiting()))

    def delivered(self, delivery: Deliver) -> None:
        """Queue one delivery. It is acknowledged once its effects are on disk."""
        if len(delivery.refs) > FEW_REFS and self._work_budget.is_used_up(delivery.sender):
            # This sender has named very many unknown messages.
            inspection.count(delivery, "cut")
            del delivery.refs[FEW_REFS:]
        if self.context.quarantine.holds(ItemKind.DELIVERY, delivery.id):
            self._set_aside(delivery)
        else:
            self._put(delivery)

    def _put(self, delivery: Deliver) -> None:
        self._batcher.spacing = self._receipt_spacing.seconds
        if self._posted is not None and delivery.kind not in inspection.STATUSES:
            self.statuses.direct.end(self._posted)
        queued = self._batcher.put(delivery, urgent=delivery.kind not in inspection.STATUSES)
        queued.add_done_callback(self._handled)

    def _put_awaited(self, delivery: Deliver) -> asyncio.Future[None]:
        """Queue one delivery; the future completes when its effects are on disk. It is cancelled if the inbox closes or
        fails before.
        """
        self._put(delivery)
        ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._awaited[delivery.id] = ended
        return ended

    def handle_cross_shard_message(self, delivery: Deliver) -> asyncio.Future[None]:
        """Queue a cross-shard message, in order with the deliveries; the future is that of `_put_awaited`."""
        if self.context.quarantine.holds(ItemKind.DELIVERY, delivery.id):
            return self._set_aside(delivery)
        return self._put_awaited(delivery)

    def handle_released(self) -> None:
        """Handle the deliveries that were quarantined and released."""
        for delivery in self.context.quarantine.released:
            self._put_awaited(delivery).add_done_callback(functools.partial(self._handled_again, delivery))

    def _handled_again(self, delivery: Deliver, done: asyncio.Future[None]) -> None:
        if not done.cancelled():
            item = quarantine.name(ItemKind.DELIVERY, delivery.id)
            self.context.journal.put(Change(self.context.account, cleared_suspects=(item,)))

    def _set_aside(self, delivery: Deliver) -> asyncio.Future[None]:
        """Keep a quarantined delivery in our tables, and acknowledge it."""
        log.error("delivery.set_aside", extra={"id": delivery.id, "from": delivery.sender, "kind": delivery.kind})
        # Only cross-shard messages have no number.
        groups = GroupChanges(self.context.account, ended_notes=() if delivery.n else (delivery.id,))
        kept = self.context.journal.put(
            Change(self.context.account, set_aside=(self.context.quarantine.kept(delivery),), groups=groups)
        )
        kept.add_done_callback(functools.partial(self._acknowledge_kept, delivery))
        return kept

    def _acknowledge_kept(self, delivery: Deliver, kept: asyncio.Future[None]) -> None:
        if not kept.cancelled() and kept.exception() is None:
            self.context.network_connection.acknowledge((delivery,))

    def _requeue(self, held: Sequence[Deliver]) -> None:
        if self._is_closed:
            return
        for delivery in held:
            self._put(delivery)

    async def close(self) -> None:
        """Finish the deliveries that have arrived."""
        self._is_closed = True
        self._catch_up.end()
        self._receipt_spacing.leave(self)
        await self._batcher.close()
        self._end_awaited()

    def _end_awaited(self) -> None:
        """Cancel what waits for deliveries that are not handled any more."""
        awaited, self._awaited = self._awaited, {}
        for ended in awaited.values():
            ended.cancel()

    def _handled(self, done: asyncio.Future[None]) -> None:
        """Fail the journal after an error: sessions in memory may be ahead of the disk, so the shard must be
        reopened.
        """
        if not done.cancelled() and (error := done.exception()) is not None:
            self.context.journal.fail(error)
            self._end_awaited()

    async def _flush(self, deliveries: Sequence[Deliver]) -> Sequence[None]:
        """Handle these deliveries and the rest of the previous batch, until none is left or new ones form the next
        batch. Raises the error that broke the shard; nothing is handled after it.
        """
        suspects = self._is_suspect if self.context.quarantine.has_suspects else None
        behind, self._in_flight = self._in_flight, ()
        waiting = delivery_order.arrange([*behind, *deliveries]) if behind else deliveries
        while waiting:
            self._in_flight = waiting
            try:
                part = inspection.part(waiting, suspects)
                if len(part) > SMALL_PART:
                    part = await self._catch_up.due(part)
                handled = await self._take(part)
                waiting = waiting[handled:]
            finally:
                self._in_flight = ()
            if waiting:
                waiting = self._in_flight = delivery_order.arrange(waiting)
                await asyncio.sleep(PAUSE_SECONDS)
                if self._batcher.pending:
                    self._batcher.skip_spacing()
                    break
        return [None] * len(deliveries)

    def _is_suspect(self, delivery: Deliver) -> bool:
        """Return whether the delivery has ended a process or a shard before."""
        return self.context.quarantine.is_suspect(ItemKind.DELIVERY, delivery.id)

    async def _take(self, deliveries: Sequence[Deliver]) -> int:
        """Handle, commit and acknowledge deliveries in order, at least one, until the time is up. Returns their
        number.
        """
        about = list({message_id for delivery in deliveries for message_id in inspection.subjects(delivery)})
        self.statuses.tracker.hold(about)
        try:
            await self._load_statuses(about)
            self._consume_work_budget(deliveries)
            with contextlib.ExitStack() as loaded:
                effects = await self._prepare(deliveries, loaded)
                handled = await self._handle(deliveries, effects)
        except Exception as error:
            if not self.context.journal.broken.done() and not outages.is_outage(error):
                attach_suspects(error, _items(deliveries))
            raise
        finally:
            self.statuses.tracker.release(about)
        crashpoints.reach(crashpoints.AFTER_ROW_BEFORE_NETWORK_ACK)
        done = deliveries[:handled]
        if effects.held:
            waiting = {id(delivery) for delivery in effects.held}
            done = [delivery for delivery in done if id(delivery) not in waiting]
            asyncio.get_running_loop().call_later(HELD_SECONDS, self._requeue, effects.held)
        self.context.network_connection.acknowledge(done)
        if self._awaited:
            for delivery in done:
                if (ended := self._awaited.pop(delivery.id, None)) is not None:
                    ended.set_result(None)
        return handled

    async def _prepare(self, deliveries: Sequence[Deliver], loaded: contextlib.ExitStack) -> BatchEffects:
        """Load the state that deliveries of these kinds need, and no other. It stays in memory until `loaded` is
        closed. Returns the empty effects.
        """
        kinds, senders = {delivery.kind for delivery in deliveries}, inspection.by_session(deliveries)
        if senders:
            loaded.enter_context(self.peers.sessions.pinned(senders))
            loaded.enter_context(self.peers.identities.pinned(senders))
            await self.peers.sessions.load(senders)
        if device.PREKEY in kinds:
            await self.context.prekeys.load(deliveries)
            await self._set_ups.load(deliveries)
        if device.RETRY in kinds:
            loaded.callback(self.recovery.resending.evict)
            await self.recovery.resending.load(deliveries)
        groups: Arrivals | None = None
        if not kinds <= inspection.STATUSES.keys() or any(delivery.group for delivery in deliveries):
            groups = await self.groups.events.open(deliveries)
        config = self.context.config
        security = config.preferences().security or (config.cloud is not None and config.cloud.shows_identity)
        if senders:
            await self.peers.identities.load(senders if security else inspection.with_keys(deliveries))
        return BatchEffects(groups, self.statuses.tracker, self.context, security=security)

    def _note_receipt(self, delivery: Deliver, effects: BatchEffects) -> None:
        """Record a receipt: a recipient received or read our messages, or the network gave them up.

        Each status is reported once, however often it arrives. Receipts of unknown messages are ignored.
        """
        tracker, status = self.statuses.tracker, inspection.STATUSES[delivery.kind]
        error = EXPIRED if status is Status.FAILED else None
        for message_id in inspection.subjects(delivery):
            peer, seconds = tracker.peer(message_id), delivery.timestamp // 1000
            if delivery.group and peer == delivery.group and status is not Status.FAILED:
                effects.reached.append((message_id, Status.SENT, seconds, None))
                is_new = effects.arrivals.receipt(delivery, message_id, status)
                inspection.count(delivery, "noted" if is_new else "duplicate")
            elif peer == delivery.sender:
                inspection.count(delivery, "noted")
                effects.reached.append((message_id, status, seconds, error))
            else:
                # Only the recipient of a message can report its status.
                inspection.count(delivery, "unknown")

    def _note_group_change(self, delivery: Deliver, effects: BatchEffects) -> None:
        """Apply a notice of the network about a changed group, and report it to the webhook once, as a message of type
        `system`.
        """
        if not inspection.subjects(delivery) or delivery.id in self.statuses.tracker:
            inspection.count(delivery, "duplicate")
            return
        content = effects.arrivals.changed(delivery)
        if content is None:
            inspection.count(delivery, "unusable")
            return
        inspection.count(delivery, "noted")
        effects.received(delivery, inbound.SYSTEM)
        message, seconds = inbound.Inbound(inbound.SYSTEM, content), delivery.timestamp // 1000
        effects.callbacks += events.inbound(
            self.context, delivery.id, delivery.sender, seconds, message, group_id=delivery.group
        )

    def _send_again(self, delivery: Deliver, effects: BatchEffects) -> None:
        """Handle a recipient's request to send messages again."""
        self.recovery.resending.resend(delivery, effects)
        inspection.count(delivery, "noted")

    async def _load_statuses(self, ids: Sequence[str]) -> None:
        """Load the status of every message that these deliveries are about, including inbound ones."""
        missing = [message_id for message_id in ids if message_id not in self.statuses.tracker]
        if missing:
            self.statuses.tracker.load(
                await self.context.database.query(
                    lambda connection: messages.list_progress(connection, self.context.account, missing)
                )
            )

    def _consume_work_budget(self, deliveries: Sequence[Deliver]) -> None:
        """Consume the work budget of senders for reads of unknown message ids."""
        for delivery in deliveries:
            if len(delivery.refs) > FEW_REFS:
                unknown = sum(message_id not in self.statuses.tracker for message_id in inspection.subjects(delivery))
                if unknown:
                    self._work_budget.consume(delivery.sender, unknown)

    async def _handle(self, deliveries: Sequence[Deliver], effects: BatchEffects) -> int:
        """Handle deliveries until the time is up and commit their effects. Returns their number. Nothing else runs
        before the journal has the effects.
        """
        handled, until = 0, time.perf_counter() + ITERATION_SECONDS
        for delivery in deliveries:
            handle = self._handlers.get(delivery.kind)
            if handle is None:
                log.warning("event.unknown", extra={"kind": delivery.kind, "from": delivery.sender})
            else:
                with self.context.quarantine.handling(ItemKind.DELIVERY, delivery.id, delivery.sender):
                    handle(delivery, effects)
            handled += 1
            if time.perf_counter() >= until:
                break
        control_messages = effects.control_messages
        if effects.lost:
            control_messages = [*control_messages, *self.recovery.session_repair.control_messages(effects.lost)]
        jobs = self.recovery.control_messages.jobs(control_messages) if control_messages else ()
        change = effects.change(self.statuses.reports, self.peers.sessions, self.peers.contacts, jobs)
        if change is not None:
            change.made_from = functools.partial(_items, deliveries[:handled])
            if effects.groups is None and not change.failed_messages:
                await self._post_and_commit(change)
            else:
                await self._commit(change, effects, control_messages)
        if effects.groups is not None:
            effects.groups.committed()
        return handled

    async def _post_and_commit(self, change: Change) -> None:
        """Commit a change that has nothing but statuses, after these were posted if they can be posted directly."""
        queued: asyncio.Future[asyncio.Future[None]] = asyncio.get_running_loop().create_future()

        def commit(left: Sequence[Callback], accepted: Sequence[EndedAttempt]) -> None:
            change.new_callbacks, change.ended_callbacks = left, accepted
            try:
                queued.set_result(self.context.journal.put(change))
            except Exception as error:
                queued.set_exception(error)

        if all(delivery.kind in inspection.STATUSES for delivery in self._batcher.waiting()):
            about = change.statuses or ()
            self._posted = self.statuses.direct.post(change.new_callbacks, commit, about=about)
        else:
            # Messages do not wait for the webhook.
            commit(change.new_callbacks, ())
        await (await queued)
        self._posted = None

    async def _commit(self, change: Change, effects: BatchEffects, control_messages: Sequence[ControlMessage]) -> None:
        """Commit a change, and start what was waiting for it."""
        committed = self.context.journal.put(change)
        if control_messages:
            self.recovery.control_messages.post(control_messages, change.enqueued_jobs)
        if effects.identity_findings.rows or effects.identity_findings.kyber:
            self.peers.identities.announce(effects.identity_findings, committed)
        await committed
        if effects.last_message_at:
            self.peers.window.record(effects.last_message_at)
        if effects.downloads or effects.ended_downloads or effects.revocations:
            self.media.downloads.offer(effects.downloads)
            self.media.downloads.ended(effects.ended_downloads)
            self.media.downloads.revoked(effects.revocations)
        if effects.used_prekeys:
            self._end_prekeys(effects.used_prekeys)

    def _end_prekeys(self, used: Sequence[UsedPreKey]) -> None:
        """Drop used pre-keys, whose deletion is on disk. A session whose key another session had used is dropped
        too.
        """
        for key in used:
            self.context.device.one_time_of(key.kind).pop(key.key_id, None)
        over = list(dict.fromkeys(key.peer for key in used if key.was_gone))
        if over:
            committed = self.context.journal.put(Change(self.context.account, dropped_sessions=over))
            for peer in over:
                self.peers.sessions.evict(peer)
                self.peers.sessions.hold(peer, committed)


def _items(deliveries: Sequence[Deliver]) -> Sequence[quarantine.Item]:
    return [quarantine.name(ItemKind.DELIVERY, delivery.id) for delivery in deliveries]


def _handle_cross_shard_message(delivery: Deliver, effects: BatchEffects) -> None:
    effects.arrivals.note(delivery)
