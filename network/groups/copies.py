"""Messages to groups: a copy for each other participant, in the mailbox or on its way to the device."""

from __future__ import annotations

import asyncio
import dataclasses
import functools
import logging
import sys
from collections.abc import Collection, Mapping, Sequence

from prometheus_client import Counter

from network.context import NetworkContext
from network.groups.kept_messages import KeptMessages, count_fitting, make_copy
from network.groups.memberships import AddressedGroup, Memberships, find_refusal, readers
from network.routing import admission
from network.routing.delivery_queue import EnvelopeOrigin
from network.routing.quotas import MailboxUsage, QuotaRefusal, SenderUsage, refused
from network.routing.reservations import Reservations
from tidings.aio import crashpoints
from tidings.aio.batcher import Batcher, BatcherClosed, BatcherFull
from tidings.aio.lru import LRU
from tidings.aio.quota import Quota, QuotaUsage
from tidings.storage import outages
from tidings.storage.database import Connection
from tidings.storage.network import directory, group_messages, groups, mailbox
from tidings.storage.network.group_messages import StoredGroupMessage
from tidings.storage.network.groups import Chat
from tidings.wire import device

log = logging.getLogger(__name__)

TAKEN = Counter("tidings_network_group_messages_total", "Group messages accepted from senders")
COPIED = Counter("tidings_network_group_copies_total", "Copies of group messages stored or delivered")
DROPPED = Counter(
    "tidings_network_group_copies_dropped_total", "Copies of group messages dropped because the mailbox was full"
)

# Messages that may wait for the database; one more is refused as `overloaded`. At 128 KiB each at most 64 MiB.
WAITING = 512
# Pairs of sender and group whose rate limit is remembered.
REMEMBERED = 10_000
# Messages in one batch; `count_fitting` bounds those in one of its transactions.
BATCH = 64
# Quotas of one sender's messages that wait for the database, and of the bytes of their copies, because others wait
# behind them. One message is always admitted.
MESSAGES, COPIES = Quota(WAITING, WAITING, is_fair=True), Quota(sys.maxsize, 32 * 1024 * 1024)
# Copies of a message to a group of unknown size: those of the largest group.
LARGEST_GROUP = 256
TOO_MANY_WAIT = QuotaRefusal(device.RATE_LIMITED, "too many group messages of this sender wait", 1)
# Seconds that a batch waits while the database is unreachable; the mailboxes of members are delayed for as long.
RETRY_SECONDS = 5.0


@dataclasses.dataclass(slots=True, eq=False)
class GroupUsage(SenderUsage):
    """Rate limit of a sender in a group, with the size of its messages."""

    # Copies of its last message, and the group's epoch at that time.
    copies: int = LARGEST_GROUP
    epoch: int = -1

    def size_of(self, frame: device.Send) -> int:
        """Return the bytes of all copies of a message."""
        copies = self.copies if frame.epoch == self.epoch else LARGEST_GROUP
        return copies * mailbox.size_of(frame.body, frame.refs)

    def learn(self, frame: device.Send, copies: int) -> None:
        """Record the number of copies of a message of this epoch."""
        self.copies, self.epoch = copies, frame.epoch


@dataclasses.dataclass(slots=True)
class GroupBatch:
    """Effects of one transaction on its messages."""

    # For each message, reason and detail of a refusal, both empty when it is accepted.
    results: list[tuple[str, str]] = dataclasses.field(default_factory=list)
    # Accepted messages, as (sender, id).
    new: list[tuple[str, str]] = dataclasses.field(default_factory=list)
    # Copies of messages found to have been stored by an earlier attempt or transaction.
    settled: list[mailbox.Envelope] = dataclasses.field(default_factory=list)
    # Copies that are stored in mailboxes.
    rows: list[mailbox.Envelope] = dataclasses.field(default_factory=list)
    # Messages that are stored for copies in memory only.
    kept: list[StoredGroupMessage] = dataclasses.field(default_factory=list)
    # Number of copies that were not made, because their mailboxes had no room.
    dropped: int = 0
    # Groups by id that changed before these messages, on this or another node.
    changed: dict[str, Chat] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(slots=True)
class CopyAttempts:
    """Attempts of one transaction."""

    # `seq` of messages of earlier transactions that it searches for.
    suspects: Collection[int]
    # `seq` of messages of earlier attempts of this transaction.
    kept: set[int] = dataclasses.field(default_factory=set)
    # Effects of the latest attempt, which are counted in the usage of mailboxes; `None` before the first.
    batch: GroupBatch | None = None


@dataclasses.dataclass(slots=True, eq=False)
class Copies:
    """Messages to groups, each copied in one transaction; its sender gets a response after the commit.

    For devices attached here one row holds the message with the numbers of their copies, which are delivered after the
    commit (`LiveCopies`). All other copies are rows of the mailbox; with several nodes all copies are.

    With several nodes another node may have stored notices of changes and not announced them yet. So after a change the
    first message on this node makes the nodes of all participants read their mailboxes before they deliver it.

    The ids of accepted messages are stored with the copies. So a duplicate is recognised for as long as envelopes live,
    also after a restart. A member whose mailbox has no room gets no copy, so that no member blocks a group.

    One sender may have at most as many of the `WAITING` messages as are still free, and copies of 32 MiB. Beyond that,
    and beyond the rate limit of a pair, messages are refused as `rate_limited`.
    """

    context: NetworkContext
    kept: KeptMessages
    _memberships: Memberships = dataclasses.field(default_factory=Memberships)
    # By sender and group.
    _usages: LRU[tuple[str, str], GroupUsage] = dataclasses.field(default_factory=lambda: LRU(REMEMBERED))
    # Messages that wait for the database by sender, and bytes of their copies.
    _waiting: QuotaUsage[str] = dataclasses.field(default_factory=QuotaUsage)
    _bytes: QuotaUsage[str] = dataclasses.field(default_factory=QuotaUsage)
    _batcher: Batcher[device.Send, tuple[str, str]] = dataclasses.field(init=False)

    def __post_init__(self) -> None:
        # One batch in flight, so messages of one sender stay in order.
        self._batcher = Batcher(
            "group_messages", self._flush, max_size=BATCH, max_pending=WAITING, isolate=outages.refuses_row
        )

    def send(self, origin: EnvelopeOrigin, frame: device.Send) -> None:
        """Accept or refuse one message, whose form its connection has checked."""
        mailbox_usages, now = self.context.mailbox_usages, self.context.clock.monotonic()
        sender_usage = self._usage_of(frame)
        size = sender_usage.size_of(frame)
        refusal = mailbox_usages.quota_check.check_rate(sender_usage, frame.id, now)
        if refusal is None and self._waits_for_others(frame.sender, size):
            refusal = refused(sender_usage, frame.id, TOO_MANY_WAIT, now)
        if refusal is None and frame.sender in mailbox_usages.stored.empty:
            refusal = mailbox_usages.refuse_stored(sender_usage, frame, now)
        if refusal is not None:
            admission.refuse(origin, frame, refusal.reason, refusal.detail, refusal.retry_after)
            return
        try:
            done = self._batcher.put(frame)
        except (BatcherFull, BatcherClosed):
            admission.refuse(origin, frame, device.OVERLOADED)
            return
        mailbox_usages.quota_check.passed(sender_usage, now)
        self._waiting.add(frame.sender)
        self._bytes.add(frame.sender, size)
        done.add_done_callback(functools.partial(self._finish, origin, frame, size))

    def _waits_for_others(self, sender: str, size: int) -> bool:
        """Return whether too many messages of this sender wait, so that those of others must go first."""
        waiting = self._waiting.of(sender)
        has_room = MESSAGES.has_room(self._waiting.total, waiting) and self._bytes.has_room(COPIES, sender, size)
        return waiting > 0 and not has_room

    def _usage_of(self, frame: device.Send) -> GroupUsage:
        pair = (frame.sender, frame.to)
        sender_usage = self._usages.get(pair)
        if sender_usage is None:
            sender_usage = GroupUsage()
            self._usages.put(pair, sender_usage)
        return sender_usage

    def _finish(
        self, origin: EnvelopeOrigin, frame: device.Send, size: int, done: asyncio.Future[tuple[str, str]]
    ) -> None:
        self._waiting.remove(frame.sender)
        self._bytes.remove(frame.sender, size)
        _respond(origin, frame, done)

    async def close(self) -> None:
        """Store pending messages and accept no more."""
        await self._batcher.close()

    async def _flush(self, frames: Sequence[device.Send]) -> Sequence[tuple[str, str]]:
        results: list[tuple[str, str]] = []
        while left := frames[len(results) :]:
            sizes = ((self._memberships.size_of(frame.to), len(frame.body)) for frame in left)
            results += await self._store(left[: count_fitting(sizes)])
        return results

    async def _store(self, frames: Sequence[device.Send]) -> Sequence[tuple[str, str]]:
        """Store these messages in one transaction; return the reason and the detail of a refusal for each."""
        mailbox_usages, attempts = self.context.mailbox_usages, CopyAttempts(self.kept.suspects)
        with self.context.reservations() as reservations:
            try:
                batch = await self.context.database.persist(
                    functools.partial(self._attempt, frames, reservations, attempts), retry_seconds=RETRY_SECONDS
                )
            except BaseException:
                self._subtract_last_attempt(attempts)
                self.kept.suspect(attempts.kept)
                raise
            if batch.rows or batch.kept:
                crashpoints.reach(crashpoints.AFTER_STORE_BEFORE_ACCEPTED, frames[0].to)
            self.kept.settled(attempts.suspects)
            for row in batch.settled:
                mailbox_usages.add(row.recipient, row.sender, mailbox.size_of(row.body, row.refs))
            for row in batch.rows:
                mailbox_usages.note_stored(row.sender, mailbox.size_of(row.body, row.refs))
            # Rows that are not in `reservations.stored` are read from the mailbox, behind the notices of changes.
            known = [row for row in batch.rows if row.group not in batch.changed]
            reservations.stored = {row.seq: row for row in (*batch.settled, *known)}
            reservations.kept = batch.kept
        for chat in batch.changed.values():
            self._memberships.note_message(chat)
        TAKEN.inc(sum(not reason for reason, _ in batch.results))
        COPIED.inc(len(batch.rows) + sum(len(message.copies) for message in batch.kept))
        DROPPED.inc(batch.dropped)
        return batch.results

    def _subtract_last_attempt(self, attempts: CopyAttempts) -> None:
        """Subtract the latest attempt, which has failed as far as is known, from the usage of mailboxes."""
        batch, attempts.batch = attempts.batch, None
        if batch is None:
            return
        attempts.kept.update(message.seq for message in batch.kept)
        for row in batch.rows:
            self.context.mailbox_usages.remove(row.recipient, row.sender, mailbox.size_of(row.body, row.refs))
        for message in batch.kept:
            size = mailbox.size_of(message.body, message.refs)
            for number in message.copies:
                self.context.mailbox_usages.remove(number, message.sender, size)

    async def _attempt(
        self, frames: Sequence[device.Send], reservations: Reservations, attempts: CopyAttempts, connection: Connection
    ) -> GroupBatch:
        """Run one attempt to store these messages."""
        self._subtract_last_attempt(attempts)
        addressed = await self._find_groups(connection, {frame.to for frame in frames})
        # Messages that an earlier attempt or transaction did store are placed before these.
        settled = await self.kept.settle(connection, reservations, attempts.kept.union(attempts.suspects))
        taken = await groups.list_sends(connection, {(frame.sender, frame.id) for frame in frames})
        usages = await self._mailbox_usages_of(connection, frames, addressed)
        now = self.context.now()
        attempts.batch = batch = GroupBatch(settled=settled)
        for frame in frames:
            group, result = addressed.get(frame.to), ("", "")
            if (frame.sender, frame.id) not in taken:
                result = find_refusal(frame, group)
                if group is not None and not result[0]:
                    taken.add((frame.sender, frame.id))
                    batch.new.append((frame.sender, frame.id))
                    numbers = readers(frame, group)
                    self._usage_of(frame).learn(frame, len(numbers))
                    self._add_copies(frame, numbers, usages, reservations, batch, now)
                    self._note_change(group, reservations, batch)
            batch.results.append(result)
        await groups.add_sends(connection, batch.new, now)
        await group_messages.add(connection, batch.kept)
        await mailbox.insert(connection, batch.rows)
        return batch

    def _add_copies(
        self,
        frame: device.Send,
        numbers: Sequence[str],
        usages: Mapping[str, MailboxUsage],
        reservations: Reservations,
        batch: GroupBatch,
        now: int,
    ) -> None:
        """Add the copies of one message to the batch, for those of the numbers whose mailboxes have room."""
        mailbox_usages, ttl = self.context.mailbox_usages, self.context.settings.message_ttl
        expires_at = now + (min(frame.ttl, ttl) if frame.ttl else ttl) * 1000
        size, moment = mailbox.size_of(frame.body, frame.refs), self.context.clock.monotonic()
        may_be_live = not mailbox_usages.is_shared and reservations.may_be_live(frame.sender, size)
        live: dict[str, int] = {}
        stored: list[tuple[str, int]] = []
        for number in numbers:
            if not mailbox_usages.take_copy(usages[number], frame.sender, size, moment):
                batch.dropped += 1
            elif may_be_live and (seq := reservations.reserve_live(number)):
                live[number] = seq
            else:
                stored.append((number, reservations.reserve(number, device.GROUP_HASH_SLOT)))
        message = StoredGroupMessage(
            seq=max(live.values(), default=0),
            sender=frame.sender,
            id=frame.id,
            timestamp=now,
            expires_at=expires_at,
            body=frame.body,
            refs=frame.refs,
            trace=frame.trace,
            group=frame.to,
            copies=live,
        )
        batch.rows += [make_copy(message, number, seq) for number, seq in stored]
        if live:
            batch.kept.append(message)

    def _note_change(self, group: AddressedGroup, reservations: Reservations, batch: GroupBatch) -> None:
        """Have the mailboxes of all participants read if other nodes may have changed the group."""
        chat = group.chat
        if (
            not self.context.mailbox_usages.is_shared
            or chat.id in batch.changed
            or not self._memberships.has_changed(chat)
        ):
            return
        batch.changed[chat.id] = chat
        copied = {row.recipient for row in batch.rows if row.group == chat.id}
        for number in group.members:
            if number not in copied:
                # The release of a position without an envelope causes a read, too. Later messages may have a copy for
                # this participant.
                reservations.reserve(number, device.GROUP_HASH_SLOT)

    async def _mailbox_usages_of(
        self, connection: Connection, frames: Sequence[device.Send], addressed: Mapping[str, AddressedGroup]
    ) -> dict[str, MailboxUsage]:
        """Return the usage of each member's mailbox; nearly always cached."""
        mailbox_usages = self.context.mailbox_usages
        numbers = {number for group in addressed.values() for number in group.members}
        usages = {number: usage for number in numbers if (usage := mailbox_usages.get(number)) is not None}
        if mailbox_usages.is_shared:
            for frame in frames:
                group, size = addressed.get(frame.to), mailbox.size_of(frame.body, frame.refs)
                for number in group.members if group is not None else ():
                    usage = usages.get(number)
                    if usage is not None and mailbox_usages.needs_recount(usage, frame.sender, size):
                        mailbox_usages.evict(number)
                        del usages[number]
        if unknown := sorted(numbers - usages.keys()):
            found = await mailbox.list_waiting(connection, unknown, notices=device.NOTICES)
            usages |= {number: mailbox_usages.learn(number, found.get(number, ())) for number in unknown}
        return usages

    async def _find_groups(self, connection: Connection, ids: Collection[str]) -> dict[str, AddressedGroup]:
        """Return the groups with these ids, locked against changes until the transaction ends."""
        recipients = self.context.directory.recipients
        changes = recipients.changes
        chats = await groups.list_chats(connection, ids, lock=True)
        members = await self._memberships.list(connection, chats)
        blocks: dict[str, Collection[str]] = {}
        unknown: set[str] = set()
        for number in {number for each in members.values() for number in each}:
            blocked = recipients.get(number)
            if blocked is None:
                unknown.add(number)
            elif blocked:
                blocks[number] = blocked
        if unknown:
            # Every participant of a group is registered.
            found = await directory.list_blocks(connection, unknown)
            recipients.learn(unknown, found, changes)
            blocks |= found
        return {id_: AddressedGroup(chat, members[id_], blocks) for id_, chat in chats.items()}


def _respond(origin: EnvelopeOrigin, frame: device.Send, done: asyncio.Future[tuple[str, str]]) -> None:
    error = None if done.cancelled() else done.exception()
    if error is not None and outages.refuses_row(error):
        log.error(
            "group_message.refused", extra={"sender": frame.sender, "id": frame.id, "error": outages.brief(error)}
        )
        admission.refuse(origin, frame, device.INVALID, "the mailbox cannot store the message")
        return
    if done.cancelled() or error is not None:
        admission.refuse(origin, frame, device.OVERLOADED)
        return
    reason, detail = done.result()
    if reason:
        admission.refuse(origin, frame, reason, detail)
    else:
        origin.accepted(frame.n)
