"""What one batch of deliveries and outgoing messages comes to: no I/O, sessions in memory, rows out."""

from __future__ import annotations

import dataclasses
import functools
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from prometheus_client import Counter

from handset import behaviours, composing, content
from handset.application import Notice
from handset.devices import Device
from handset.groups import contents
from handset.groups.book import Book
from handset.posting import Positions, Post
from handset.vault import Vault
from tidings import e2ee
from tidings.storage import handset as storage
from tidings.storage.database import Connection
from tidings.wire import device as wire

log = logging.getLogger(__name__)

RECEIVED = Counter("tidings_handset_messages_total", "Messages received", ["outcome"])
SESSIONS = Counter("tidings_handset_sessions_total", "Sessions set up", ["by"])

PeerKey = tuple[str, str]  # number, peer


@dataclasses.dataclass(slots=True, eq=False)
class Arrival:
    """One delivery; acknowledged on `peer` as soon as what it says is on disk."""

    peer: Any
    device: Device
    frame: wire.Deliver
    attempt: int = 1


@dataclasses.dataclass(slots=True, eq=False)
class Outgoing:
    """One message of our own. Without a session and without a bundle it is not sent, and its result is `None`.

    anew: set a session up from the bundle even though there is one.
    """

    device: Device
    peer: str
    plaintext: bytes
    bundle: e2ee.PreKeyBundle | None = None
    anew: bool = False


@dataclasses.dataclass(slots=True, eq=False)
class Step:
    """Something else to be done in the transaction, in its turn. It must not raise for anything but the database."""

    work: Callable[[Connection, Digest], Awaitable[Any]]


class Digest:
    """Collects the consequences of one batch. A digest whose rows do not get committed is thrown away whole, together
    with the sessions it was given.

    sessions: those that exist, of everybody in the batch; changed in place.
    prekeys:  those that the batch's first messages name, as far as they exist.
    post:     what is to be sent.
    work:     what the last delivery asks for within the transaction, before the next one is looked at.
    to_ask, to_give: peers whose key of a group we lack, and who lack ours.
    """

    def __init__(
        self,
        fleet: str,
        vault: Vault,
        book: Book,
        decide: Callable[[behaviours.Message], Sequence[behaviours.Action]],
        positions: Positions,
        post: Post,
    ) -> None:
        self._fleet = fleet
        self._vault = vault
        self._book = book
        self._decide = decide
        self._positions = positions
        self.post = post
        self.sessions: dict[PeerKey, e2ee.SessionRecord] = {}
        self.prekeys: Mapping[tuple[str, int], storage.PreKey] = {}
        self.changed: dict[PeerKey, e2ee.SessionRecord] = {}
        self.dropped: set[PeerKey] = set()
        self.used_prekeys: list[tuple[str, int]] = []
        self.messages: list[storage.Message] = []
        self.shown: list[behaviours.Message] = []
        self.notices: list[Notice] = []
        self.to_heal: list[tuple[Device, str]] = []
        self.work: list[Callable[[Connection], Awaitable[None]]] = []
        self.to_ask: list[tuple[Device, str, str]] = []
        self.to_give: list[tuple[Device, str, str]] = []

    def receive(self, arrival: Arrival) -> None:
        """One delivery that is not in the inbox."""
        frame = arrival.frame
        kind = frame.kind
        if kind == wire.MESSAGE or kind == wire.PREKEY:
            self._decrypt(arrival)
        elif kind == wire.GROUP:
            self._decrypt_for_group(arrival)
        elif kind in (wire.DELIVERED, wire.READ, wire.EXPIRED):
            refs = tuple(frame.refs)
            self.notices.append(Notice(arrival.device.number, frame.sender, kind, refs, group=frame.group))
        elif kind == wire.GROUP_CHANGED:
            self._follow(arrival)
        elif kind == wire.IDENTITY:
            record = self.sessions.get((arrival.device.number, frame.sender))
            # A session that has the new key already goes on.
            if record is None or record.remote_identity != frame.body:
                self._new_identity(arrival.device, frame.sender)
                self._drop_session(arrival)
        else:
            log.warning("delivery.unknown_kind", extra={"number": arrival.device.number, "kind": kind, "id": frame.id})

    def send(self, outgoing: Outgoing) -> str | None:
        """The id under which it will go out. Raises `e2ee.E2EEError` when the bundle cannot be used."""
        key = (outgoing.device.number, outgoing.peer)
        record = self.sessions.get(key)
        if outgoing.bundle is not None and (record is None or outgoing.anew):
            record = self._initiate(outgoing.device, record, outgoing.bundle)
        if record is None:
            return None
        return self._encrypt(outgoing.device, outgoing.peer, record, outgoing.plaintext)

    def _initiate(
        self, device: Device, existing: e2ee.SessionRecord | None, bundle: e2ee.PreKeyBundle
    ) -> e2ee.SessionRecord:
        SESSIONS.labels("us").inc()
        try:
            return e2ee.SessionRecord.initiate(device.identity, device.registration_id, bundle, existing=existing)
        except e2ee.UntrustedIdentity:
            return e2ee.SessionRecord.initiate(device.identity, device.registration_id, bundle)

    def _encrypt(self, device: Device, peer: str, record: e2ee.SessionRecord, plaintext: bytes) -> str:
        kind, body = record.encrypt(plaintext)
        self._keep(device, peer, record)
        return self.post.message(device, peer, wire.PREKEY if kind == e2ee.PREKEY else wire.MESSAGE, body)

    def _keep(self, device: Device, peer: str, record: e2ee.SessionRecord) -> None:
        key = (device.number, peer)
        self.sessions[key] = self.changed[key] = record
        self.dropped.discard(key)

    def _decrypt(self, arrival: Arrival) -> None:
        device, frame = arrival.device, arrival.frame
        before = self.sessions.get((device.number, frame.sender))
        try:
            record, plaintext = self._open(device, frame, before)
        except e2ee.E2EEError as error:
            self._unreadable(arrival, error)
            return
        self._keep(device, frame.sender, record)
        try:
            inside = content.decode(plaintext)
        except content.NotUnderstood as error:
            self._unreadable(arrival, error)
            return
        replied = False
        if inside.type in (contents.SENDER_KEY, contents.SENDER_KEY_REQUEST):
            self._control(arrival, inside.type, plaintext)
        elif inside.type == content.EMPTY_TYPE:
            self._store(arrival, inside.type, "")
            RECEIVED.labels("empty").inc()
        else:
            replied = self._act(device, record, self._show(arrival, inside, plaintext))
        if record is not before and not replied:
            # Until it reads an answer, the initiator repeats the key exchange in every message.
            self._encrypt(device, frame.sender, record, content.EMPTY)

    def _decrypt_for_group(self, arrival: Arrival) -> None:
        frame = arrival.frame
        try:
            plaintext = self._book.read(arrival.device.number, frame)
            inside = content.decode(plaintext)
        except (e2ee.E2EEError, content.NotUnderstood) as error:
            self._unreadable(arrival, error)
            return
        if inside.type in (content.EMPTY_TYPE, contents.SENDER_KEY, contents.SENDER_KEY_REQUEST):
            self._store(arrival, storage.EMPTY, "")
        else:
            self._act(arrival.device, None, self._show(arrival, inside, plaintext))

    def _show(self, arrival: Arrival, inside: content.Content, plaintext: bytes) -> behaviours.Message:
        """Into the inbox, and to the application after the commit."""
        frame, kind = arrival.frame, inside.type[:16]
        text = raw = ""
        stored = kind
        if kind == content.TEXT_TYPE and inside.text is not None:
            text = inside.text.body
            stored = storage.TEXT if inside.context is None else storage.ANSWER
        if stored != storage.TEXT:
            raw = plaintext.decode(errors="replace")
        position = self._store(arrival, stored, raw or text)
        number, attempt = arrival.device.number, arrival.attempt
        message = behaviours.Message(
            number, frame.sender, frame.id, position, attempt, frame.timestamp, kind, text, raw, frame.group
        )
        self.shown.append(message)
        return message

    def _control(self, arrival: Arrival, kind: str, plaintext: bytes) -> None:
        """About the keys of a group; nobody sees it, and its secrets are not kept in the inbox."""
        device, peer = arrival.device, arrival.frame.sender
        self._store(arrival, storage.CONTROL, "")
        RECEIVED.labels("control").inc()
        try:
            asked = contents.decode_control(kind, plaintext)
        except content.NotUnderstood as error:
            log.warning("control.not_understood", extra={"number": device.number, "from": peer, "error": str(error)})
            return
        if isinstance(asked, contents.SenderKey):
            self.work.append(functools.partial(self._book.take_up, number=device.number, sender=peer, given=asked))
        else:
            self.to_give.append((device, peer, asked.group))

    def _follow(self, arrival: Arrival) -> None:
        device, frame = arrival.device, arrival.frame
        try:
            change = contents.decode_change(frame.body)
        except content.NotUnderstood as error:
            log.warning("group_change.not_understood", extra={"number": device.number, "error": str(error)})
            return
        self.work.append(functools.partial(self._book.follow, number=device.number, group=frame.group, change=change))
        refs = tuple(change.numbers)
        self.notices.append(
            Notice(device.number, change.by, "group_changed", refs, change.change, frame.group, change.subject)
        )

    def _act(self, device: Device, record: e2ee.SessionRecord | None, message: behaviours.Message) -> bool:
        """Do what the application wants; true when that sends something on the session.

        A message to a group has no session that it came by: only receipts answer it here.
        """
        try:
            actions = self._decide(message)
        except Exception:
            # Left to rise, it would stop the message at each new delivery again.
            log.exception("application.failed", extra={"number": message.number, "id": message.id})
            return False
        replied = False
        for action in actions:
            if isinstance(action, behaviours.Receipt):
                self.post.receipt(device, message, action)
            elif record is not None:
                answer = composing.text(action.text) if isinstance(action, behaviours.Reply) else action.content
                self._encrypt(device, message.peer, record, content.encode(answer))
                replied = True
        return replied

    def _open(
        self, device: Device, frame: wire.Deliver, record: e2ee.SessionRecord | None
    ) -> tuple[e2ee.SessionRecord, bytes]:
        if frame.kind == wire.MESSAGE:
            if record is None:
                raise e2ee.NoSession("no session with this peer")
            return record, record.decrypt(e2ee.MESSAGE, frame.body)
        first = e2ee.PreKeySignalMessage.parse(frame.body)
        if record is not None and record.remote_identity == first.identity_key and not record.needs_setup(first):
            return record, record.decrypt(e2ee.PREKEY, frame.body)
        if record is not None and record.remote_identity != first.identity_key:
            # Trust on first use, and whoever looks is told when a later one differs.
            self._new_identity(device, frame.sender)
            record = None
        row = self.prekeys.get((device.number, first.signed_prekey_id))
        if row is None or row.kind != storage.SIGNED:
            raise e2ee.UnknownPreKey(f"signed pre-key {first.signed_prekey_id}")
        signed = self._vault.signed(row)
        one_time, kyber = self._one_time(device, first.prekey_id), self._kyber(device, first.kyber_prekey_id)
        fresh = e2ee.SessionRecord.respond(
            record,
            device.identity,
            first,
            signed,
            self._vault.one_time(one_time) if one_time else None,
            self._vault.kyber(kyber) if kyber else None,
        )
        plaintext = fresh.decrypt(e2ee.PREKEY, frame.body)
        SESSIONS.labels("peer").inc()
        self.used_prekeys += [
            (used.number, used.key_id) for used in (one_time, kyber) if used and used.kind != storage.KYBER_LAST
        ]
        return fresh, plaintext

    def _one_time(self, device: Device, key_id: int | None) -> storage.PreKey | None:
        row = self.prekeys.get((device.number, key_id)) if key_id is not None else None
        if row is None or row.kind != storage.ONE_TIME or (row.number, row.key_id) in self.used_prekeys:
            return None
        return row

    def _kyber(self, device: Device, key_id: int | None) -> storage.PreKey | None:
        row = self.prekeys.get((device.number, key_id)) if key_id is not None else None
        if row is None or row.kind not in (storage.KYBER_ONE_TIME, storage.KYBER_LAST):
            return None
        return None if (row.number, row.key_id) in self.used_prekeys else row

    def _store(self, arrival: Arrival, kind: str, text: str) -> int:
        """Put it into the inbox; returns its position."""
        self._positions.inbox += 1
        position, frame, number = self._positions.inbox, arrival.frame, arrival.device.number
        self.messages.append(
            storage.Message(
                self._fleet, position, number, frame.sender, frame.id, kind, frame.timestamp, text, frame.group
            )
        )
        return position

    def _unreadable(self, arrival: Arrival, error: Exception) -> None:
        """It is acknowledged like any other, or it would be delivered for ever: kept by its id, counted, logged.

        Its sender never sees `delivered`. A session that no longer fits is mended by one of our own making.
        """
        device, frame = arrival.device, arrival.frame
        reason = type(error).__name__
        RECEIVED.labels("undecryptable").inc()
        fields = {"number": device.number, "from": frame.sender, "id": frame.id, "reason": reason, "error": str(error)}
        log.warning("message.undecryptable", extra=fields)
        self._store(arrival, storage.UNREADABLE, reason)
        self.notices.append(Notice(device.number, frame.sender, "undecryptable", (frame.id,), reason))
        if not isinstance(error, e2ee.InvalidMessage | e2ee.NoSession | e2ee.CorruptState):
            return
        if frame.kind == wire.GROUP:
            self.to_ask.append((device, frame.sender, frame.group))
        else:
            self.to_heal.append((device, frame.sender))

    def _new_identity(self, device: Device, peer: str) -> None:
        self.notices.append(Notice(device.number, peer, "identity"))
        self.work.append(functools.partial(self._book.new_identity, number=device.number, peer=peer))

    def _drop_session(self, arrival: Arrival) -> None:
        key = (arrival.device.number, arrival.frame.sender)
        self.sessions.pop(key, None)
        self.changed.pop(key, None)
        self.dropped.add(key)
