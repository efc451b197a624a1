"""Messages to groups: a copy for each other participant, in the mailbox."""

from __future__ import annotations

import asyncio
import collections
import dataclasses
import functools
import logging
from collections.abc import Mapping, Sequence

from prometheus_client import Counter

from network.routing import admission
from network.routing.delivery_queue import Origin
from network.routing.mailboxes import Mailboxes
from network.routing.notices import Notices, Reservations
from network.routing.quotas import Judge, Refusal, Share, Usage, refused
from tidings.runtime import crashpoints
from tidings.runtime.batcher import Batcher, BatcherClosed, BatcherFull
from tidings.runtime.clock import Clock
from tidings.runtime.lru import LRU
from tidings.storage import outages
from tidings.storage.database import Connection, Database
from tidings.storage.network import directory, groups, mailbox
from tidings.storage.network.groups import Chat, Member
from tidings.wire import device

log = logging.getLogger(__name__)

TAKEN = Counter("tidings_network_group_messages_total", "Messages to groups taken from senders")
COPIED = Counter("tidings_network_group_copies_total", "Copies of them put into the mailbox")
DROPPED = Counter("tidings_network_group_copies_dropped_total", "Copies of them for whose recipients there was no room")

# Messages that may wait for the database; one more is refused as `overloaded`. At 128 KiB each at most 64 MiB.
WAITING = 512
# Pairs of sender and group whose pace is remembered.
REMEMBERED = 10_000
# Messages in one transaction, so up to 4,080 copies.
BATCH = 16
# Bytes of copies of one sender's messages that may wait for the database, which others wait for; of one message always.
# A group whose size is not known yet counts as the largest.
SENDERS_BYTES, LARGEST = 32 * 1024 * 1024, 256
TOO_MANY_WAIT = Refusal(device.RATE_LIMITED, "too many messages of this sender to groups wait", 1)
# Seconds for which a batch waits while the database is away; what it puts off meanwhile are the mailboxes of members.
PATIENCE = 5.0


@dataclasses.dataclass(frozen=True, slots=True)
class AddressedGroup:
    """Group that a message is addressed to. blocks: whom each member blocks."""

    chat: Chat
    members: Sequence[Member]
    blocks: dict[str, set[str]]


def judge(frame: device.Send, group: AddressedGroup | None) -> tuple[str, str]:
    """The reason to refuse it, and a detail for people; empty when it is accepted."""
    if group is None:
        return device.NO_SUCH_GROUP, ""
    if all(member.number != frame.sender for member in group.members):
        return device.NOT_PARTICIPANT, ""
    if frame.epoch != group.chat.epoch:
        return device.STALE_GROUP, f"the epoch of the group is {group.chat.epoch}"
    return "", ""


def readers(frame: device.Send, group: AddressedGroup) -> list[str]:
    """Who gets a copy: everybody else, except those who have blocked the author."""
    nobody: set[str] = set()
    return [
        member.number
        for member in group.members
        if member.number != frame.sender and frame.sender not in group.blocks.get(member.number, nobody)
    ]


class GroupShare(Share):
    """A sender's pace in a group, and how many copies its last message there was, under which epoch of the group."""

    __slots__ = ("_copies", "_epoch")

    def __init__(self) -> None:
        super().__init__()
        self._copies, self._epoch = LARGEST, -1

    def size_of(self, frame: device.Send) -> int:
        """Bytes of all copies of a message."""
        copies = self._copies if frame.epoch == self._epoch else LARGEST
        return copies * mailbox.size_of(frame.body, frame.refs)

    def learn(self, frame: device.Send, copies: int) -> None:
        """A message of this epoch has so many."""
        self._copies, self._epoch = copies, frame.epoch


class Copies:
    """Messages to groups, each wholly copied in one transaction; its sender hears of it after the commit.

    Which messages were taken is stored with the copies: a repeated one is known for as long as envelopes live, also
    after a restart. Whoever has no room for one in the mailbox gets no copy, so that nobody holds a group up.

    Of the `WAITING` messages one sender has at most as many as are still free, and copies of `SENDERS_BYTES`; beyond
    that, and beyond the pace of a pair, they are refused as `rate_limited`.
    """

    def __init__(
        self, database: Database, mailboxes: Mailboxes, notices: Notices, *, judge: Judge, clock: Clock, ttl: int
    ) -> None:
        """ttl: seconds that a copy waits at most."""
        self._database = database
        self._mailboxes = mailboxes
        self._notices = notices
        self._judge = judge
        self._clock = clock
        self._ttl = ttl
        self._shares: LRU[tuple[str, str], GroupShare] = LRU(REMEMBERED)
        self._waiting: collections.Counter[str] = collections.Counter()
        self._bytes: collections.Counter[str] = collections.Counter()
        # One batch in flight: messages of one sender stay in order.
        self._batcher: Batcher[device.Send, tuple[str, str]] = Batcher(
            "group_messages", self._flush, max_size=BATCH, max_pending=WAITING, isolate=outages.refuses_row
        )

    def send(self, origin: Origin, frame: device.Send) -> None:
        """Take one message, which its connection has checked for form."""
        now = self._clock.monotonic()
        share = self._share_of(frame)
        size = share.size_of(frame)
        refusal = self._judge.pace(share, frame.id, now)
        if refusal is None and self._waits_for_others(frame.sender, size):
            refusal = refused(share, frame.id, TOO_MANY_WAIT, now)
        if refusal is None and frame.sender in self._mailboxes.stored.empty:
            refusal = self._mailboxes.refuse_stored(share, frame, now)
        if refusal is not None:
            admission.refuse(origin, frame, refusal.reason, refusal.detail, refusal.retry_after)
            return
        try:
            done = self._batcher.put(frame)
        except (BatcherFull, BatcherClosed):
            admission.refuse(origin, frame, device.OVERLOADED)
            return
        self._judge.passed(share, now)
        self._waiting[frame.sender] += 1
        self._bytes[frame.sender] += size
        done.add_done_callback(functools.partial(self._answered, origin, frame, size))

    def _waits_for_others(self, sender: str, size: int) -> bool:
        """Has this one so much waiting that it is the turn of others?"""
        waiting = self._waiting[sender]
        if waiting and self._bytes[sender] + size > SENDERS_BYTES:
            return True
        return waiting >= max(1, WAITING - self._waiting.total())

    def _share_of(self, frame: device.Send) -> GroupShare:
        pair = (frame.sender, frame.to)
        share = self._shares.get(pair)
        if share is None:
            share = GroupShare()
            self._shares.put(pair, share)
        return share

    def _answered(self, origin: Origin, frame: device.Send, size: int, done: asyncio.Future[tuple[str, str]]) -> None:
        self._waiting[frame.sender] -= 1
        self._bytes[frame.sender] -= size
        if not self._waiting[frame.sender]:
            del self._waiting[frame.sender], self._bytes[frame.sender]
        _answer(origin, frame, done)

    async def close(self) -> None:
        """Take what is pending and no more."""
        await self._batcher.close()

    async def _flush(self, frames: Sequence[device.Send]) -> Sequence[tuple[str, str]]:
        with self._notices.reservations() as reservations:
            answers, rows, dropped = await self._database.persist(
                functools.partial(self._copy, frames, reservations), patience=PATIENCE
            )
            if rows:
                crashpoints.reach(crashpoints.AFTER_STORE_BEFORE_ACCEPTED)
            for row in rows:
                self._mailboxes.add(row.recipient, row.sender, mailbox.size_of(row.body, row.refs))
            reservations.stored = {row.seq: row for row in rows}
        TAKEN.inc(sum(not reason for reason, _ in answers))
        COPIED.inc(len(rows))
        DROPPED.inc(dropped)
        return answers

    async def _copy(
        self, frames: Sequence[device.Send], reservations: Reservations, connection: Connection
    ) -> tuple[list[tuple[str, str]], list[mailbox.Envelope], int]:
        """What each is answered, the copies that were made, and how many were not for want of room."""
        now = int(self._clock.now() * 1000)
        addressed = await _look_up(connection, {frame.to for frame in frames})
        taken = await groups.list_sends(connection, {(frame.sender, frame.id) for frame in frames})
        answers: list[tuple[str, str]] = []
        rows: list[mailbox.Envelope] = []
        new: list[tuple[str, str]] = []
        dropped = 0
        usages = await self._count(connection, frames, addressed)
        for frame in frames:
            if (frame.sender, frame.id) in taken:
                answers.append(("", ""))
                continue
            group = addressed.get(frame.to)
            answers.append(judge(frame, group))
            if group is None or answers[-1][0]:
                continue
            taken.add((frame.sender, frame.id))
            new.append((frame.sender, frame.id))
            expires_at = now + (min(frame.ttl, self._ttl) if frame.ttl else self._ttl) * 1000
            size = mailbox.size_of(frame.body, frame.refs)
            numbers = readers(frame, group)
            self._share_of(frame).learn(frame, len(numbers))
            for number in numbers:
                if self._mailboxes.has_room(usages[number], frame.sender, size):
                    rows.append(_row(frame, number, reservations.reserve(number, device.GROUP_SLOT), now, expires_at))
                else:
                    dropped += 1
        await groups.add_sends(connection, new, now)
        await mailbox.insert(connection, rows)
        return answers, rows, dropped

    async def _count(
        self, connection: Connection, frames: Sequence[device.Send], addressed: Mapping[str, AddressedGroup]
    ) -> dict[str, Usage]:
        """What waits for each member; nearly always known."""
        numbers = {member.number for group in addressed.values() for member in group.members}
        usages = {number: usage for number in numbers if (usage := self._mailboxes.get(number)) is not None}
        for frame in frames if self._mailboxes.is_shared else ():
            size = mailbox.size_of(frame.body, frame.refs)
            for member in addressed[frame.to].members if frame.to in addressed else ():
                usage = usages.get(member.number)
                if usage is not None and self._mailboxes.is_doubtful(usage, frame.sender, size):
                    self._mailboxes.forget(member.number)
                    del usages[member.number]
        if unknown := sorted(numbers - usages.keys()):
            found = await mailbox.list_waiting(connection, unknown, notices=device.NOTICES)
            usages |= {number: self._mailboxes.learn(number, found.get(number, ())) for number in unknown}
        return usages


async def _look_up(connection: Connection, ids: set[str]) -> dict[str, AddressedGroup]:
    """The groups of these ids, which cannot change until the transaction ends."""
    chats = await groups.list_chats(connection, ids, lock=True)
    members = await groups.list_members(connection, list(chats))
    blocks = await directory.list_blocks(connection, {member.number for each in members.values() for member in each})
    return {id_: AddressedGroup(chat, members[id_], blocks) for id_, chat in chats.items()}


def _row(frame: device.Send, recipient: str, seq: int, now: int, expires_at: int) -> mailbox.Envelope:
    return mailbox.Envelope(
        seq=seq,
        recipient=recipient,
        sender=frame.sender,
        id=frame.id,
        kind=device.GROUP,
        timestamp=now,
        expires_at=expires_at,
        body=frame.body,
        refs=frame.refs,
        trace=frame.trace,
        group=frame.to,
        slot=device.GROUP_SLOT,
    )


def _answer(origin: Origin, frame: device.Send, done: asyncio.Future[tuple[str, str]]) -> None:
    error = None if done.cancelled() else done.exception()
    if error is not None and outages.refuses_row(error):
        log.error(
            "group_message.refused", extra={"sender": frame.sender, "id": frame.id, "error": outages.brief(error)}
        )
        admission.refuse(origin, frame, device.INVALID, "the mailbox cannot hold it")
        return
    if done.cancelled() or error is not None:
        admission.refuse(origin, frame, device.OVERLOADED)
        return
    reason, detail = done.result()
    if reason:
        admission.refuse(origin, frame, reason, detail)
    else:
        origin.accepted(frame.n)
