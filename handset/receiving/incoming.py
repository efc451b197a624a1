"""Handling of a delivery: decrypts it and adds rows, receipts, replies and requests to the batch."""

from __future__ import annotations

import dataclasses
import functools
import logging
from collections.abc import Callable, Sequence

from handset import composing
from handset.application import TYPING, Action, DeviceEvent, ReceivedMessage, SendReceipt, SendText
from handset.devices.device import Device
from handset.receiving.batch import InboundBatch
from handset.receiving.duplicates import RECEIVED
from handset.receiving.first_messages import FirstMessages
from handset.receiving.items import Delivery, PeerKey
from handset.receiving.outgoing import SESSIONS, MessageEncryptor
from handset.receiving.sender_keys import SenderKeyStore
from tidings import e2ee
from tidings.client import sessions
from tidings.storage.database import Connection
from tidings.storage.handset import inbox
from tidings.wire import content, groups
from tidings.wire.decoding import UNREADABLE
from tidings.wire.device import (
    DELIVERED,
    EXPIRED,
    GROUP,
    GROUP_CHANGED,
    IDENTITY,
    MESSAGE,
    PREKEY,
    READ,
    RETRY,
    TRANSIENT,
    Deliver,
)

log = logging.getLogger(__name__)


@dataclasses.dataclass(eq=False, repr=False, slots=True)
class DeliveryHandler:
    """Handles the new deliveries of one batch, in order."""

    batch: InboundBatch
    encryptor: MessageEncryptor
    _: dataclasses.KW_ONLY
    first_messages: FirstMessages
    sender_keys: SenderKeyStore
    decide: Callable[[ReceivedMessage], Sequence[Action]]  # returns the application's actions for a message
    may_request: Callable[[PeerKey], bool]  # returns whether one more message may be requested from a peer

    async def handle(self, connection: Connection, delivery: Delivery) -> None:
        """Handle a delivery that is not in the inbox, unless an earlier one of this batch had the same message."""
        device, frame = delivery.device, delivery.frame
        if self.batch.inbox.is_read(delivery.key):
            RECEIVED.labels("duplicate").inc()
            return
        kind = frame.kind
        if kind in (MESSAGE, PREKEY):
            await self._decrypt(connection, delivery)
        elif kind == GROUP:
            self._decrypt_for_group(delivery)
        elif kind in (DELIVERED, READ, EXPIRED):
            self.batch.events.append(
                DeviceEvent(device.number, frame.sender, kind, tuple(frame.refs), group=frame.group)
            )
        elif kind == RETRY:
            await self.encryptor.send_again(connection, device, frame)
        elif kind == TRANSIENT:
            self._decrypt_transient(delivery)
        elif kind == GROUP_CHANGED:
            await self._follow_group(connection, delivery)
        elif kind == IDENTITY:
            record = self.batch.sessions.get(delivery.peer_key)
            if not sessions.has_identity(record, frame.body):
                await self._new_identity(connection, device, frame.sender)
                self.batch.sessions.drop(delivery.peer_key)
        else:
            log.warning("delivery.unknown_kind", extra={"number": device.number, "kind": kind, "id": frame.id})

    async def _decrypt(self, connection: Connection, delivery: Delivery) -> None:
        device, peer = delivery.device, delivery.frame.sender
        before = self.batch.sessions.get(delivery.peer_key)
        try:
            record, plaintext = await self._open(connection, device, delivery.frame, before)
        except e2ee.E2EEError as error:
            self._undecryptable(delivery, error)
            return
        self.batch.sessions.put(delivery.peer_key, record)
        try:
            inside = content.decode(plaintext)
        except content.UnreadableContent as error:
            self._undecryptable(delivery, error)
        else:
            answered = await self._read(connection, delivery, record, inside, plaintext)
            if not answered and _completes_key_exchange(delivery.frame, record, before):
                self.encryptor.encrypt(device, peer, record, content.NULL_CONTENT, resendable=False)
        if record is not before:
            await self.encryptor.send_waiting(connection, device, peer)

    async def _open(
        self, connection: Connection, device: Device, frame: Deliver, record: e2ee.SessionRecord | None
    ) -> tuple[e2ee.SessionRecord, bytes]:
        if frame.kind == MESSAGE:
            return sessions.read(record, frame.body)
        first = e2ee.PreKeySignalMessage.parse(frame.body)
        if record is not None and not sessions.has_identity(record, first.identity_key):
            # Trust on first use. The application is notified when a later key differs.
            await self._new_identity(connection, device, frame.sender)
            record = None
        prekeys = self.first_messages.prekeys_of(device)
        check = functools.partial(self.first_messages.check, device, frame.sender)
        opened, plaintext = sessions.read_first(record, device.identity, first, frame.body, prekeys, check=check)
        if opened is not record:
            SESSIONS.labels("peer").inc()
            self.first_messages.use_up(device, frame.sender, first)
        return opened, plaintext

    async def _read(
        self,
        connection: Connection,
        delivery: Delivery,
        record: e2ee.SessionRecord,
        inside: content.Content,
        plaintext: bytes,
    ) -> bool:
        """Handle a decrypted content. Returns whether a reply is sent on the session."""
        if inside.type in (content.SENDER_KEY, content.SENDER_KEY_REQUEST):
            await self._handle_control(connection, delivery, plaintext)
        elif inside.type in (content.NULL, content.TYPING):
            self.batch.inbox.add(delivery, inbox.EMPTY)
            RECEIVED.labels("empty").inc()
        else:
            return self._act(delivery.device, record, self._show(delivery, inside, plaintext))
        return False

    def _decrypt_transient(self, delivery: Delivery) -> None:
        """Handle an envelope that is not stored. One that cannot be decrypted is dropped."""
        device, frame = delivery.device, delivery.frame
        try:
            record, plaintext = sessions.read(self.batch.sessions.get(delivery.peer_key), frame.body)
        except e2ee.E2EEError as error:
            log.info("transient.dropped", extra={"number": device.number, "from": frame.sender, "error": repr(error)})
            return
        self.batch.sessions.put(delivery.peer_key, record)
        try:
            is_typing = content.decode(plaintext).type == content.TYPING
        except content.UnreadableContent:
            return
        if is_typing:
            self.batch.events.append(DeviceEvent(device.number, frame.sender, TYPING))

    def _decrypt_for_group(self, delivery: Delivery) -> None:
        try:
            plaintext = self.sender_keys.read(delivery.device.number, delivery.frame)
            inside = content.decode(plaintext)
        except (e2ee.E2EEError, content.UnreadableContent) as error:
            self._undecryptable(delivery, error)
            return
        if inside.type in (content.NULL, content.TYPING, content.SENDER_KEY, content.SENDER_KEY_REQUEST):
            self.batch.inbox.add(delivery, inbox.EMPTY)
        else:
            self._act(delivery.device, None, self._show(delivery, inside, plaintext))

    def _show(self, delivery: Delivery, inside: content.Content, plaintext: bytes) -> ReceivedMessage:
        """Add a message to the inbox. The application shows it after the commit."""
        frame, kind = delivery.frame, inside.type[:16]
        if kind in inbox.RESERVED:
            kind = inbox.UNKNOWN
        text = raw = ""
        stored = kind
        if kind == content.TEXT and inside.text is not None:
            text = inside.text.body
            stored = inbox.TEXT if inside.context is None else inbox.ANSWER
        if stored != inbox.TEXT:
            raw = plaintext.decode(errors="replace")
        row = self.batch.inbox.add(delivery, stored, raw or text)
        number, attempt = delivery.device.number, delivery.attempt
        message = ReceivedMessage(
            number, frame.sender, row.id, row.position, attempt, row.received_at, kind, text, raw, frame.group
        )
        self.batch.shown.append(message)
        return message

    def _act(self, device: Device, record: e2ee.SessionRecord | None, message: ReceivedMessage) -> bool:
        """Add the application's actions for a message. Returns whether one sends something on the session.

        A group message has no session, so only receipts can be sent for it.
        """
        try:
            actions = self.decide(message)
        except Exception:
            # If this were raised, each redelivery of the message would fail again.
            log.exception("application.failed", extra={"number": message.number, "id": message.id})
            return False
        answered = False
        for action in actions:
            if isinstance(action, SendReceipt):
                self.batch.outbox.add_receipt(device, message, action)
                if action.kind == READ:
                    self.batch.inbox.mark_read((message.number, message.peer, message.id))
            elif record is not None:
                answer = composing.text(action.text) if isinstance(action, SendText) else action.content
                self.encryptor.encrypt(device, message.peer, record, content.encode(answer))
                answered = True
        return answered

    async def _handle_control(self, connection: Connection, delivery: Delivery, plaintext: bytes) -> None:
        """Handle a message about the keys of a group. It is not shown, and its secrets are not stored in the inbox."""
        device, peer = delivery.device, delivery.frame.sender
        self.batch.inbox.add(delivery, inbox.CONTROL)
        RECEIVED.labels("control").inc()
        try:
            control = content.decode_about_keys(plaintext)
        except content.UnreadableContent as error:
            log.warning("control.not_understood", extra={"number": device.number, "from": peer, "error": str(error)})
            return
        if isinstance(control, content.SenderKey):
            await self.sender_keys.accept(connection, device.number, peer, control)
        else:
            self.batch.keys_to_send.append((device, peer, control.group))

    async def _follow_group(self, connection: Connection, delivery: Delivery) -> None:
        number, frame = delivery.device.number, delivery.frame
        try:
            change = groups.decode_notice(frame.body)
        except UNREADABLE as error:
            log.warning("group_change.not_understood", extra={"number": number, "error": str(error)})
            return
        self.batch.events.append(
            DeviceEvent(
                number, change.by, "group_changed", tuple(change.numbers), change.change, frame.group, change.subject
            )
        )
        await self.sender_keys.apply_change(connection, number, frame.group, change)

    def _undecryptable(self, delivery: Delivery, error: Exception) -> None:
        """Acknowledge a message that cannot be read, so that it is not redelivered forever.

        Its id is stored, counted and logged.

        Its sender never gets a `delivered` receipt. A session that no longer fits is replaced by one that this
        device sets up, and the message is requested again. For a group message the sender key is requested.
        """
        device, frame, key = delivery.device, delivery.frame, delivery.key
        reason = type(error).__name__
        RECEIVED.labels("undecryptable").inc()
        fields = {"number": device.number, "from": frame.sender, "id": key[2], "reason": reason, "error": str(error)}
        log.warning("message.undecryptable", extra=fields)
        if not self.batch.inbox.is_undecrypted(key):
            self.batch.inbox.add(delivery, inbox.UNREADABLE, reason)
            self.batch.events.append(DeviceEvent(device.number, frame.sender, "undecryptable", (key[2],), reason))
        if not sessions.is_repairable(error):
            return
        if frame.kind == GROUP:
            self.batch.keys_to_request.append((device, frame.sender, frame.group))
        else:
            record = self.batch.sessions.get(delivery.peer_key)
            self.batch.to_renew.append((device, frame.sender, record is None or not record.unacknowledged))
            if self.may_request(delivery.peer_key):
                self.batch.outbox.request_again(device, frame.sender, key[2])

    async def _new_identity(self, connection: Connection, device: Device, peer: str) -> None:
        self.batch.events.append(DeviceEvent(device.number, peer, "identity"))
        await self.sender_keys.new_identity(connection, device.number, peer)


def _completes_key_exchange(frame: Deliver, record: e2ee.SessionRecord, before: e2ee.SessionRecord | None) -> bool:
    """Return whether a message on this session is answered with a null message.

    Until the initiator receives a message, it repeats the key exchange in every one of its own. A session that replaces
    another is completed at once, a peer's first one with its second message: most recipients get only one.

    record: session that decrypted the message
    before: session with this peer before the message; None if there was none
    """
    if record is not before:
        return before is not None
    return frame.kind == PREKEY and not record.unanswered
