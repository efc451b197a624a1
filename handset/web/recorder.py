"""Record of a number's chats: projects the inbox, sent messages and events to the rows that its page shows."""

from __future__ import annotations

import asyncio
import collections
import dataclasses
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from handset import message_parts
from handset.application import TYPING, Action, DeviceEvent, ReceivedMessage, SendReceipt
from handset.devices.context import FleetContext
from handset.receiving.inbox import shown_after_restart
from handset.typing_peers import TypingPeers
from tidings import e2ee
from tidings.aio import service
from tidings.aio.service import Wakeup
from tidings.storage.database import Connection, DatabaseError
from tidings.storage.handset import chats, inbox, outbox, sent
from tidings.storage.handset.chats import ChatItemRow, LastItem
from tidings.storage.handset.outbox import OutboxRow
from tidings.wire import content
from tidings.wire.decoding import UNREADABLE
from tidings.wire.device import DELIVERED, GROUP, MESSAGE, PREKEY

log = logging.getLogger(__name__)

PAGE = 200  # rows that one transaction adds per direction
MAX_PENDING = 10_000  # events that are not recorded yet; the oldest are dropped
MAX_EARLY = 1_000  # receipts of group messages that are not recorded yet
RETRY_SECONDS = 2.0  # seconds before the next attempt after the store failed
KEPT_DAYS = 60
KEPT_ITEMS = 20_000  # items of one number
EXPIRY_SECONDS = 3600.0  # seconds between two deletions of older items
MAX_DETAIL = 200  # characters of the reason of a failure

# Kinds of items about another message.
_ABOUT = {"reaction": "message_id", content.DELETED: "id"}
_MESSAGES = (MESSAGE, PREKEY, GROUP)
_DELIVERED_ONLY = (SendReceipt(DELIVERED),)
# States of own messages in their order. A later one is never replaced by an earlier one.
_ORDER = (chats.QUEUED, chats.SENT, chats.DELIVERED, chats.READ)
_NOTICES = ("identity", "undecryptable", "group_changed")


@dataclasses.dataclass(frozen=True, slots=True)
class _Draft:
    """Item without its position."""

    chat: str
    id: str
    author: str
    kind: str
    at: int
    content: str
    state: str
    source: int = 0


@dataclasses.dataclass(frozen=True, slots=True)
class _StateChange:
    """Change of own messages."""

    ids: Sequence[str]
    state: str
    peer: str = ""  # recipient or reader of a group message; empty for others
    detail: str = ""


class ChatRecorder:
    """Application of one number, and the service that records its chats.

    Messages are recorded from the inbox and from the sent messages, which are committed before; a crash loses none.
    """

    def __init__(self, context: FleetContext, number: str, changed: Callable[[], None]) -> None:
        """changed(): called when a chat of the number has changed"""
        self.name = f"chats of {number}"
        self.typing = TypingPeers(context.clock)
        self._context = context
        self._number = number
        self._changed = changed
        self._wakeup = Wakeup()
        self._typing_timer: asyncio.TimerHandle | None = None
        self._recording = asyncio.Lock()
        # Last recorded item; None until it is read from the store.
        self._last: LastItem | None = None
        # Outbox position at the start, and positions up to it whose messages the network has not accepted yet.
        self._sent_before, self._waiting = 0, frozenset[int]()
        self._expired_at = context.clock.monotonic()  # time of the last deletion of older items
        self._states: list[_StateChange] = []
        self._drafts: list[_Draft] = []
        # Changes of own group messages that are not recorded yet.
        self._early: collections.deque[_StateChange] = collections.deque(maxlen=MAX_EARLY)

    # Called by the fleet.

    def actions(self, message: ReceivedMessage) -> Sequence[Action]:
        return _DELIVERED_ONLY

    def show(self, messages: Sequence[ReceivedMessage]) -> None:
        for message in messages:
            if not message.group:
                self.typing.end(message.number, message.peer)
        self._wakeup.wake()

    def list_shown(self, messages: Sequence[ReceivedMessage]) -> set[tuple[str, str]]:
        return {(message.number, message.id) for message in messages}

    def notify(self, event: DeviceEvent) -> None:
        if event.kind == TYPING:
            if self.typing.begin(event.number, event.peer):
                self._changed()
            self._await_typing_end()
            return
        if event.kind in (chats.DELIVERED, chats.READ):
            self._put_state(_StateChange(event.refs, event.kind, event.peer if event.group else ""))
        elif event.kind == chats.EXPIRED:
            self._put_state(_StateChange(event.refs, chats.EXPIRED))
        elif event.kind == "refused":
            self._put_state(_StateChange(event.refs, chats.FAILED, detail=event.detail[:MAX_DETAIL]))
        elif event.kind in _NOTICES:
            fields = {"event": event.kind, "detail": event.detail, "by": event.peer, "numbers": list(event.refs)}
            raw = msgspec.json.encode({**fields, "subject": event.subject}).decode()
            now = self._context.now()
            self._put_draft(_Draft(event.group or event.peer, "", "", chats.NOTICE, now, raw, chats.SEEN))
        self._wakeup.wake()

    def _await_typing_end(self) -> None:
        """Start the timer for the next end of an indicator, unless it runs. There is one, however many peers type."""
        left = self.typing.seconds_left(self._number)
        if self._typing_timer is None and left is not None:
            self._typing_timer = asyncio.get_running_loop().call_later(left + 0.1, self._typing_ended)

    def _typing_ended(self) -> None:
        self._typing_timer = None
        self._changed()
        self._await_typing_end()

    def accepted(self, envelopes: Sequence[OutboxRow]) -> None:
        """Record that the network has accepted messages."""
        ids = [envelope.id for envelope in envelopes if envelope.kind in _MESSAGES]
        if ids:
            self._put_state(_StateChange(ids, chats.SENT))
            self._wakeup.wake()

    # Recording.

    async def open(self) -> None:
        """Find where the record ends, and delete old items. To be awaited before anything else."""
        context = self._context
        async with context.database.transaction() as connection:
            last = await chats.find_last(connection, self._number)
            _, self._sent_before, _ = await inbox.find(connection, context.name)
            await self._delete_old(connection, last)
            envelopes = await outbox.list_envelopes(connection, context.name)
            self._waiting = frozenset(envelope.position for envelope in envelopes)
            self._drafts = await self._list_unrecorded(connection, envelopes)
        self._last = last

    async def _list_unrecorded(self, connection: Connection, envelopes: Sequence[OutboxRow]) -> list[_Draft]:
        """List the own group messages that were committed by a process that was killed before it recorded them.

        Unlike messages to one peer they are not kept once they are sent.
        """
        own = {one.id: one for one in envelopes if one.number == self._number and one.draft is not None}
        for row in await chats.list_by_id(connection, self._number, own):
            own.pop(row.id, None)
        return [self._group_draft(one.group_id, one.id, self._context.sealer.open_draft(one)) for one in own.values()]

    async def _delete_old(self, connection: Connection, last: LastItem) -> None:
        before = self._context.now() - KEPT_DAYS * 86_400_000
        # Their progress outlives them.
        await chats.save_last(connection, self._number, last)
        await chats.delete_old(connection, self._number, before=before, position=last.position - KEPT_ITEMS)
        self._expired_at = self._context.clock.monotonic()

    async def run(self, stop: asyncio.Event) -> None:
        self._wakeup.wake()
        await service.repeat(stop, self._wakeup, self._run_once, failed=self._failed)

    async def record(self) -> None:
        """Record everything that is committed. Raises the database's errors."""
        async with self._recording:
            while await self._record_some():
                pass

    async def record_sent(self) -> None:
        """Record a message that was sent.

        While the store is unreachable the service repeats it: the message is committed.
        """
        try:
            await self.record()
        except DatabaseError as error:
            self._failed(error)
            self._wakeup.wake()

    async def record_group_message(self, group: str, message_id: str, raw: bytes) -> None:
        """Record a message that the number has sent to a group."""
        self._put_draft(self._group_draft(group, message_id, raw))
        await self.record_sent()

    async def mark_read(self, connection: Connection, rows: Sequence[ChatItemRow]) -> None:
        """Record that received items were read."""
        await chats.save_states(connection, [dataclasses.replace(row, state=chats.SEEN) for row in rows])

    async def _run_once(self) -> None:
        await self.record()

    def _failed(self, error: Exception) -> float:
        log.warning("chats.not_recorded", extra={"number": self._number, "error": repr(error)[:200]})
        return RETRY_SECONDS

    def _put_state(self, change: _StateChange) -> None:
        self._states = [*self._states, change][-MAX_PENDING:]

    def _put_draft(self, draft: _Draft) -> None:
        self._drafts = [*self._drafts, draft][-MAX_PENDING:]

    async def _record_some(self) -> bool:
        """Record one page in one transaction. Returns whether there may be more."""
        drafts, self._drafts = self._drafts, []
        states, self._states = self._states, []
        added = {draft.id for draft in drafts}
        early = [change for change in self._early if not added.isdisjoint(change.ids)]
        try:
            return await self._write(drafts, [*early, *states])
        except BaseException:
            self._drafts, self._states = drafts + self._drafts, states + self._states
            self._last = None
            raise

    async def _write(self, drafts: Sequence[_Draft], states: Sequence[_StateChange]) -> bool:
        context, number = self._context, self._number
        async with context.database.transaction() as connection:
            last = self._last
            if last is None:
                # An earlier transaction failed, and may have committed.
                last = await chats.find_last(connection, number)
                stored = {row.id for row in await chats.list_by_id(connection, number, [one.id for one in drafts])}
                drafts = [draft for draft in drafts if not draft.id or draft.id not in stored]
            received = await inbox.list_of_number(connection, context.name, number, after=last.received, limit=PAGE)
            own = await sent.list_of_number(connection, context.name, number, after=last.sent, limit=PAGE)
            found = [*map(self._received, received), *map(self._own, own)]
            items = [*sorted((draft for draft in found if draft is not None), key=_time_of), *drafts]
            rows = [self._row(draft, last.position + n) for n, draft in enumerate(items, 1)]
            await chats.add(connection, rows)
            unknown = await self._apply(connection, states)
            last = LastItem(
                last.position + len(rows),
                received[-1].position if received else last.received,
                own[-1].position if own else last.sent,
            )
            if context.clock.monotonic() - self._expired_at >= EXPIRY_SECONDS:
                await self._delete_old(connection, last)
        self._last = last
        self._early.extend(unknown)
        if rows or states:
            self._changed()
        return len(received) == PAGE or len(own) == PAGE

    def _received(self, row: inbox.InboxRow) -> _Draft | None:
        if row.kind in inbox.HIDDEN:
            return None
        try:
            message = shown_after_restart(row, self._context.sealer)
        except e2ee.CorruptState as error:
            _give_up(row, error)
            return None
        raw = message.raw or content.encode_text(message.text).decode()
        chat = message.group or message.peer
        state = chats.SEEN if row.is_read else chats.UNREAD
        return _Draft(chat, message.id, message.peer, message.type, message.time, raw, state, row.position)

    def _own(self, row: sent.SentRow) -> _Draft | None:
        is_sent = row.position <= self._sent_before and row.position not in self._waiting
        try:
            raw = self._context.sealer.open_sent(row)
        except e2ee.CorruptState as error:
            _give_up(row, error)
            return None
        return _Draft(
            row.peer,
            row.id,
            row.number,
            _kind_of(raw),
            row.sent_at,
            raw.decode(),
            chats.SENT if is_sent else chats.QUEUED,
            row.position,
        )

    def _group_draft(self, group: str, message_id: str, raw: bytes) -> _Draft:
        now = self._context.now()
        return _Draft(group, message_id, self._number, _kind_of(raw), now, raw.decode(), chats.QUEUED)

    def _row(self, draft: _Draft, position: int) -> ChatItemRow:
        field = _ABOUT.get(draft.kind)
        about = message_parts.text_at(decoded(draft.content), draft.kind, field) if field else ""
        return ChatItemRow(
            self._number,
            position,
            draft.chat,
            draft.id,
            draft.author,
            draft.kind,
            draft.at,
            self._context.sealer.seal_chat(self._number, draft.chat, position, draft.content),
            draft.state,
            about[:64] if about.isascii() else "",
            draft.source,
        )

    async def _apply(self, connection: Connection, changes: Sequence[_StateChange]) -> Sequence[_StateChange]:
        """Change the states of own messages. Returns the changes of messages that are not recorded."""
        if not changes:
            return ()
        ids = {id_ for change in changes for id_ in change.ids}
        known = {row.id: row for row in await chats.list_by_id(connection, self._number, ids)}
        changed: dict[str, ChatItemRow] = {}
        unknown: list[_StateChange] = []
        for change in changes:
            for id_ in change.ids:
                row = changed.get(id_) or known.get(id_)
                if row is None:
                    unknown.append(dataclasses.replace(change, ids=(id_,)))
                elif row.author == self._number:
                    changed[id_] = _advanced(row, change)
        await chats.save_states(connection, list(changed.values()))
        return unknown


def _give_up(row: inbox.InboxRow | sent.SentRow, error: e2ee.CorruptState) -> None:
    """Log a damaged row, so that later messages are recorded."""
    log.error("chats.corrupt", extra={"number": row.number, "message_id": row.id, "error": str(error)})


def decoded(raw: str) -> Any:
    """Return a content; `None` for invalid JSON."""
    try:
        return msgspec.json.decode(raw)
    except UNREADABLE:
        return None


def _kind_of(raw: bytes) -> str:
    return content.decode(raw).type[:16]


def _time_of(draft: _Draft) -> int:
    return draft.at


def _advanced(row: ChatItemRow, change: _StateChange) -> ChatItemRow:
    """Return an own message after a change."""
    receipts: Mapping[str, Sequence[str]] = row.receipts
    if change.peer and change.peer not in receipts.get(change.state, ()):
        receipts = {**receipts, change.state: [*receipts.get(change.state, ()), change.peer]}
    if change.detail:
        receipts = {**receipts, "detail": [change.detail]}
    state = row.state
    if change.state in _ORDER:
        if state not in _ORDER or _ORDER.index(change.state) > _ORDER.index(state):
            state = change.state
    elif state in (chats.QUEUED, chats.SENT):
        state = change.state
    return dataclasses.replace(row, state=state, receipts=receipts)
