"""What one batch of deliveries and outgoing messages comes to: no I/O, sessions in memory, rows out."""

from __future__ import annotations

import functools
import logging
from collections.abc import Awaitable, Callable, Sequence

from prometheus_client import Counter

from handset import application, composing
from handset.application import DeviceEvent
from handset.devices.device import Device
from handset.devices.vault import Vault
from handset.groups.sender_keys import SenderKeyStore
from handset.receiving.duplicates import Key
from handset.receiving.first_messages import FirstMessages
from handset.receiving.items import Arrival, Outgoing
from handset.receiving.resending import Repeats, Repetition
from handset.sending.outbox import OutboxBatch, Positions
from tidings import e2ee
from tidings.storage.database import Connection
from tidings.storage.handset import inbox
from tidings.storage.handset.sent import Sent
from tidings.wire import content, groups
from tidings.wire import device as wire
from tidings.wire.decoding import UNREADABLE

log = logging.getLogger(__name__)

RECEIVED = Counter("tidings_handset_messages_total", "Messages received", ["outcome"])
SESSIONS = Counter("tidings_handset_sessions_total", "Sessions set up", ["by"])

PeerKey = tuple[str, str]  # number, peer

_KINDS = {e2ee.PREKEY: wire.PREKEY, e2ee.MESSAGE: wire.MESSAGE}


class Digest:
    """Collects the consequences of one batch. A digest whose rows do not get committed is thrown away whole, together
    with the sessions it was given.

    sessions: those that exist, of everybody in the batch; changed in place.
    first_messages: what sets sessions up.
    outbox:   what is to be sent.
    work:     what the last delivery asks for within the transaction, before the next one is looked at.
    unreadable: when messages were received (Unix milliseconds) that could not be decrypted, and are repeated here.
    to_heal: peers that need a new session, and have they answered on the one at hand?
    to_ask, to_give: peers whose key of a group we lack, and who lack ours.
    """

    def __init__(
        self,
        fleet: str,
        vault: Vault,
        sender_keys: SenderKeyStore,
        repeats: Repeats,
        decide: Callable[[application.ReceivedMessage], Sequence[application.Action]],
        may_ask: Callable[[PeerKey], bool],
        positions: Positions,
        outbox: OutboxBatch,
    ) -> None:
        self._fleet = fleet
        self._vault = vault
        self._sender_keys = sender_keys
        self._repeats = repeats
        self._decide = decide
        self._may_ask = may_ask
        self._positions = positions
        self.outbox = outbox
        self.sessions: dict[PeerKey, e2ee.SessionRecord] = {}
        self.first_messages = FirstMessages(vault)
        self.changed: dict[PeerKey, e2ee.SessionRecord] = {}
        self.dropped: set[PeerKey] = set()
        self.messages: list[inbox.InboxRow] = []
        self.shown: list[application.ReceivedMessage] = []
        self.events: list[DeviceEvent] = []
        self.unreadable: dict[Key, int] = {}
        self.readable: list[Key] = []
        self.sent: list[Sent] = []
        self.to_heal: list[tuple[Device, str, bool]] = []
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
            self.events.append(DeviceEvent(arrival.device.number, frame.sender, kind, refs, group=frame.group))
        elif kind == wire.RETRY:
            self.work.append(functools.partial(self._send_again, device=arrival.device, frame=frame))
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
        return self._encrypt(outgoing.device, outgoing.peer, record, outgoing.plaintext, kept=outgoing.kept)

    async def release(self, connection: Connection, *, device: Device, peer: str) -> None:
        """Send again, on the session that has just been set up, what waited for that."""
        record = self.sessions[device.number, peer]
        self._repeat(device, peer, record, await self._repeats.release(connection, device.number, peer, record))

    async def _send_again(self, connection: Connection, *, device: Device, frame: wire.Deliver) -> None:
        """The peer could not decrypt messages of ours."""
        peer = frame.sender
        record = self.sessions.get((device.number, peer))
        ready, waits = await self._repeats.asked_for(
            connection, device.number, peer, frame.refs, asked_by=frame.id, record=record
        )
        if record is not None:
            self._repeat(device, peer, record, ready)
        if waits:
            self.to_heal.append((device, peer, True))

    def _repeat(self, device: Device, peer: str, record: e2ee.SessionRecord, repetitions: Sequence[Repetition]) -> None:
        for again in repetitions:
            kind, body = record.encrypt(again.plaintext)
            self._keep(device, peer, record)
            self.outbox.add_message(device, peer, _KINDS[kind], body, envelope_id=again.envelope_id, repeats=again.id)

    def _initiate(
        self, device: Device, existing: e2ee.SessionRecord | None, bundle: e2ee.PreKeyBundle
    ) -> e2ee.SessionRecord:
        SESSIONS.labels("us").inc()
        try:
            return e2ee.SessionRecord.initiate(device.identity, device.registration_id, bundle, existing=existing)
        except e2ee.UntrustedIdentity:
            return e2ee.SessionRecord.initiate(device.identity, device.registration_id, bundle)

    def _encrypt(
        self, device: Device, peer: str, record: e2ee.SessionRecord, plaintext: bytes, *, kept: bool = True
    ) -> str:
        kind, body = record.encrypt(plaintext)
        self._keep(device, peer, record)
        made = self.outbox.add_message(device, peer, _KINDS[kind], body)
        if kept:
            row = self._repeats.keep(made.position, device.number, peer, made.id, plaintext, record, self.outbox.now)
            self.sent.append(row)
        return made.id

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
        if record is not before:
            self.work.append(functools.partial(self.release, device=device, peer=frame.sender))
        try:
            inside = content.decode(plaintext)
        except content.UnreadableContent as error:
            self._unreadable(arrival, error)
            return
        replied = False
        if inside.type in (content.SENDER_KEY, content.SENDER_KEY_REQUEST):
            self._control(arrival, plaintext)
        elif inside.type == content.NULL:
            self._store(arrival, inside.type, "")
            RECEIVED.labels("empty").inc()
        else:
            replied = self._act(device, record, self._show(arrival, inside, plaintext))
        if record is not before and not replied:
            # Until it reads an answer, the initiator repeats the key exchange in every message.
            self._encrypt(device, frame.sender, record, content.NULL_CONTENT, kept=False)

    def _decrypt_for_group(self, arrival: Arrival) -> None:
        frame = arrival.frame
        try:
            plaintext = self._sender_keys.read(arrival.device.number, frame)
            inside = content.decode(plaintext)
        except (e2ee.E2EEError, content.UnreadableContent) as error:
            self._unreadable(arrival, error)
            return
        if inside.type in (content.NULL, content.SENDER_KEY, content.SENDER_KEY_REQUEST):
            self._store(arrival, inbox.EMPTY, "")
        else:
            self._act(arrival.device, None, self._show(arrival, inside, plaintext))

    def _show(self, arrival: Arrival, inside: content.Content, plaintext: bytes) -> application.ReceivedMessage:
        """Into the inbox, and to the application after the commit."""
        frame, kind = arrival.frame, inside.type[:16]
        text = raw = ""
        stored = kind
        if kind == content.TEXT and inside.text is not None:
            text = inside.text.body
            stored = inbox.TEXT if inside.context is None else inbox.ANSWER
        if stored != inbox.TEXT:
            raw = plaintext.decode(errors="replace")
        row = self._store(arrival, stored, raw or text)
        number, attempt = arrival.device.number, arrival.attempt
        message = application.ReceivedMessage(
            number, frame.sender, row.id, row.position, attempt, row.received_at, kind, text, raw, frame.group
        )
        self.shown.append(message)
        return message

    def _control(self, arrival: Arrival, plaintext: bytes) -> None:
        """About the keys of a group; nobody sees it, and its secrets are not kept in the inbox."""
        device, peer = arrival.device, arrival.frame.sender
        self._store(arrival, inbox.CONTROL, "")
        RECEIVED.labels("control").inc()
        try:
            asked = content.decode_about_keys(plaintext)
        except content.UnreadableContent as error:
            log.warning("control.not_understood", extra={"number": device.number, "from": peer, "error": str(error)})
            return
        if isinstance(asked, content.SenderKey):
            self.work.append(
                functools.partial(self._sender_keys.take_up, number=device.number, sender=peer, given=asked)
            )
        else:
            self.to_give.append((device, peer, asked.group))

    def _follow(self, arrival: Arrival) -> None:
        device, frame = arrival.device, arrival.frame
        try:
            change = groups.decode_notice(frame.body)
        except UNREADABLE as error:
            log.warning("group_change.not_understood", extra={"number": device.number, "error": str(error)})
            return
        self.work.append(
            functools.partial(self._sender_keys.follow, number=device.number, group=frame.group, change=change)
        )
        refs = tuple(change.numbers)
        self.events.append(
            DeviceEvent(device.number, change.by, "group_changed", refs, change.change, frame.group, change.subject)
        )

    def _act(self, device: Device, record: e2ee.SessionRecord | None, message: application.ReceivedMessage) -> bool:
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
            if isinstance(action, application.SendReceipt):
                self.outbox.add_receipt(device, message, action)
            elif record is not None:
                answer = composing.text(action.text) if isinstance(action, application.SendText) else action.content
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
        fresh, plaintext = self.first_messages.read(device, first, frame.body, record)
        SESSIONS.labels("peer").inc()
        return fresh, plaintext

    def _store(self, arrival: Arrival, kind: str, text: str) -> inbox.InboxRow:
        """Put it into the inbox, at the next position."""
        self._positions.inbox += 1
        frame, number = arrival.frame, arrival.device.number
        key = (number, frame.sender, frame.message_id)
        received_at = frame.timestamp
        if key in self.unreadable:
            # When it was written, not when it was written again.
            received_at = self.unreadable.pop(key)
            self.readable.append(key)
        row = inbox.InboxRow(
            self._fleet,
            self._positions.inbox,
            *key,
            kind=kind,
            received_at=received_at,
            content=text,
            group=frame.group,
        )
        self.messages.append(row)
        return row

    def _unreadable(self, arrival: Arrival, error: Exception) -> None:
        """It is acknowledged like any other, or it would be delivered for ever: kept by its id, counted, logged.

        Its sender never sees `delivered`. A session that no longer fits is mended by one of our own making, and the
        message is asked for again; of a group the key.
        """
        device, frame = arrival.device, arrival.frame
        peer, key = (device.number, frame.sender), (device.number, frame.sender, frame.message_id)
        reason = type(error).__name__
        RECEIVED.labels("undecryptable").inc()
        fields = {"number": device.number, "from": frame.sender, "id": key[2], "reason": reason, "error": str(error)}
        log.warning("message.undecryptable", extra=fields)
        if key not in self.unreadable:
            self._store(arrival, inbox.UNREADABLE, reason)
            self.events.append(DeviceEvent(device.number, frame.sender, "undecryptable", (key[2],), reason))
        if not isinstance(error, e2ee.InvalidMessage | e2ee.NoSession | e2ee.CorruptState):
            return
        if frame.kind == wire.GROUP:
            self.to_ask.append((device, frame.sender, frame.group))
        else:
            record = self.sessions.get(peer)
            self.to_heal.append((device, frame.sender, record is None or not record.unacknowledged))
            if self._may_ask(peer):
                self.outbox.request_again(device, frame.sender, key[2])

    def _new_identity(self, device: Device, peer: str) -> None:
        self.events.append(DeviceEvent(device.number, peer, "identity"))
        self.work.append(functools.partial(self._sender_keys.new_identity, number=device.number, peer=peer))

    def _drop_session(self, arrival: Arrival) -> None:
        key = (arrival.device.number, arrival.frame.sender)
        self.sessions.pop(key, None)
        self.changed.pop(key, None)
        self.dropped.add(key)
