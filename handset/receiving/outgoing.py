"""Encryption of a batch's messages to single peers: own messages, replies, and messages that peers request again."""

from __future__ import annotations

from collections.abc import Sequence

from prometheus_client import Counter

from handset.devices.device import Device
from handset.receiving.batch import InboundBatch
from handset.receiving.items import OutgoingMessage
from handset.receiving.resending import Resend, SentMessages
from tidings import e2ee
from tidings.client import sessions
from tidings.storage.database import Connection
from tidings.wire.device import Deliver

SESSIONS = Counter("tidings_handset_sessions_total", "Sessions set up", ["by"])


class MessageEncryptor:
    """Encrypts with the sessions of one batch, and adds the envelopes to its outbox."""

    def __init__(self, batch: InboundBatch, sent_messages: SentMessages) -> None:
        self._batch = batch
        self._sent_messages = sent_messages

    async def send(self, connection: Connection, message: OutgoingMessage) -> str | None:
        """Encrypt a message. Returns the id of its envelope; `None` without a session and a bundle.

        Raises `e2ee.E2EEError` when the bundle cannot be used.
        """
        device, peer = message.device, message.peer
        record = self._batch.sessions.get(message.peer_key)
        if message.bundle is not None and (record is None or message.new_session):
            SESSIONS.labels("us").inc()
            record = sessions.initiate(device.identity, device.registration_id, message.bundle, record)
        if record is None:
            return None
        message_id = self.encrypt(device, peer, record, message.plaintext, resendable=message.resendable)
        if message.new_session:
            await self.send_waiting(connection, device, peer)
        return message_id

    def encrypt(
        self, device: Device, peer: str, record: e2ee.SessionRecord, plaintext: bytes, *, resendable: bool = True
    ) -> str:
        """Encrypt a plaintext on a session. Returns the id of its envelope."""
        kind, body = record.encrypt(plaintext)
        self._batch.sessions.put((device.number, peer), record)
        envelope = self._batch.outbox.add_message(device, peer, sessions.KINDS[kind], body)
        if resendable:
            self._batch.sent.append(self._sent_messages.row(envelope, plaintext, record, self._batch.outbox.now))
        return envelope.id

    async def send_waiting(self, connection: Connection, device: Device, peer: str) -> None:
        """Send the messages that waited for the session that was just set up."""
        record = self._batch.sessions.known[device.number, peer]
        self._resend(
            device, peer, record, await self._sent_messages.take_waiting(connection, device.number, peer, record)
        )

    async def send_again(self, connection: Connection, device: Device, request: Deliver) -> None:
        """Resend messages that the peer could not decrypt."""
        peer = request.sender
        record = self._batch.sessions.get((device.number, peer))
        ready, some_wait = await self._sent_messages.take_requested(
            connection, device.number, peer, request.refs, asked_by=request.id, record=record
        )
        if record is not None:
            self._resend(device, peer, record, ready)
        if some_wait:
            self._batch.to_renew.append((device, peer, True))

    def _resend(self, device: Device, peer: str, record: e2ee.SessionRecord, resends: Sequence[Resend]) -> None:
        for resend in resends:
            kind, body = record.encrypt(resend.plaintext)
            self._batch.sessions.put((device.number, peer), record)
            self._batch.outbox.add_message(
                device, peer, sessions.KINDS[kind], body, envelope_id=resend.envelope_id, repeats=resend.id
            )
