"""Sealing of all secrets that a recipient stores: identity, token, pre-keys, sessions and contents."""

from __future__ import annotations

import base64
from collections.abc import Iterable

from handset.devices.device import Device
from tidings import e2ee
from tidings.client import keys
from tidings.storage.handset import chats, devices, groups, prekeys, sent, sessions
from tidings.storage.handset.outbox import OutboxRow

_KEY_ID = 1
_SEALED_TEXT = "sealed:"
_PUBLIC = 33  # bytes of a typed public key


class RowSealer:
    """Converts devices, keys and sessions to sealed rows and back.

    Raises `e2ee.CorruptState` for rows that were sealed under another key.
    """

    def __init__(self, key: bytes) -> None:
        self._sealer = e2ee.Sealer(e2ee.Keyring({_KEY_ID: key}), cache_size=8192)

    def device_row(self, device: Device, fleet: str) -> devices.DeviceRow:
        identity = self._sealer.seal(
            device.identity.public + device.identity.private, context=(device.number, "device", "identity")
        )
        token = None
        if device.token is not None:
            token = self._sealer.seal(device.token.encode(), context=(device.number, "device", "token"))
        return devices.DeviceRow(
            device.number, fleet, device.registration_id, identity, token, device.next_key_id, device.blocked
        )

    def device(self, row: devices.DeviceRow) -> Device:
        keys = self._sealer.open(row.identity, (row.number, "device", "identity"))
        token = None
        if row.token is not None:
            token = self._sealer.open(row.token, (row.number, "device", "token")).decode()
        identity = e2ee.IdentityKeyPair.from_stored(keys[:_PUBLIC], keys[_PUBLIC:])
        return Device(
            row.number, row.registration_id, identity, token=token, next_key_id=row.next_key_id, blocked=row.blocked
        )

    def prekey_rows(
        self, number: str, kind: str, made: Iterable[e2ee.PreKey | e2ee.SignedPreKey | e2ee.KyberPreKey]
    ) -> list[prekeys.HandsetPreKeyRow]:
        """Return sealed rows of pre-keys, without the parts that only their upload needs."""
        return [
            prekeys.HandsetPreKeyRow(
                number,
                key.key_id,
                kind,
                self._sealer.seal(keys.pack(key, uploadable=False), context=(number, "prekey", kind, key.key_id)),
            )
            for key in made
        ]

    def one_time(self, row: prekeys.HandsetPreKeyRow) -> e2ee.PreKey:
        return keys.unpack_one_time(row.key_id, self._open_prekey(row))

    def signed(self, row: prekeys.HandsetPreKeyRow) -> e2ee.SignedPreKey:
        """Open a signed pre-key. Its signature is missing."""
        return keys.unpack_signed(row.key_id, self._open_prekey(row))

    def kyber(self, row: prekeys.HandsetPreKeyRow) -> e2ee.KyberPreKey:
        """Open a Kyber pre-key. Its public key and signature are missing."""
        return keys.unpack_kyber(row.key_id, self._open_prekey(row))

    def seal_half(self, number: str, peer: str, half: str, state: bytes) -> bytes:
        """Seal one half of a session's state.

        half: `sending` or `receiving`
        """
        return self._sealer.seal(state, context=(number, peer, half))

    def session(self, device: Device, row: sessions.SessionRow) -> e2ee.SessionRecord:
        return e2ee.SessionRecord.load(
            device.identity,
            self._sealer.open(row.sending, (row.number, row.peer, "sending")),
            self._sealer.open(row.receiving, (row.number, row.peer, "receiving")),
        )

    def sender_key_row(self, number: str, group: str, sender: str, record: e2ee.SenderKeyRecord) -> groups.SenderKeyRow:
        sealed = self._sealer.seal(record.to_bytes(), context=(number, group, sender, "sender key"))
        return groups.SenderKeyRow(number, group, sender, sealed)

    def sender_key(self, row: groups.SenderKeyRow) -> e2ee.SenderKeyRecord:
        state = self._sealer.open(row.record, (row.number, row.group_id, row.sender, "sender key"))
        return e2ee.SenderKeyRecord.from_bytes(state)

    def seal_draft(self, number: str, group: str, message_id: str, plaintext: bytes) -> bytes:
        """Seal the plaintext of a group message, which is kept until the network has accepted the message."""
        return self._sealer.seal(plaintext, context=(number, group, message_id, "draft"))

    def open_draft(self, envelope: OutboxRow) -> bytes:
        """Open the draft of a group message. Raises `CorruptState`."""
        assert envelope.draft is not None
        return self._sealer.open(envelope.draft, (envelope.number, envelope.group_id, envelope.id, "draft"))

    def seal_sent(self, number: str, peer: str, message_id: str, plaintext: bytes) -> bytes:
        """Seal a plaintext that was sent to a peer, which may request it again."""
        return self._sealer.seal(plaintext, context=(number, peer, "sent"), row=message_id)

    def open_sent(self, row: sent.SentRow) -> bytes:
        return self._sealer.open(row.content, (row.number, row.peer, "sent", row.id))

    def seal_text(self, number: str, peer: str, message_id: str, text: str) -> str:
        """Seal the text of a message in the inbox. An empty text stays empty."""
        if not text:
            return ""
        sealed = self._sealer.seal(text.encode(), context=(number, peer, "inbox"), row=message_id)
        return _SEALED_TEXT + base64.b64encode(sealed).decode()

    def open_text(self, number: str, peer: str, message_id: str, stored: str) -> str:
        """Return the text that `seal_text` was given.

        Texts that an earlier release stored unsealed are returned unchanged.
        """
        if not stored.startswith(_SEALED_TEXT):
            return stored
        sealed = base64.b64decode(stored.removeprefix(_SEALED_TEXT))
        return self._sealer.open(sealed, (number, peer, "inbox", message_id)).decode()

    def seal_chat(self, number: str, chat: str, position: int, content: str) -> str:
        """Seal the content of an item in a chat."""
        sealed = self._sealer.seal(content.encode(), context=(number, chat, "chat"), row=str(position))
        return base64.b64encode(sealed).decode()

    def open_chat(self, row: chats.ChatItemRow) -> str:
        context = (row.number, row.chat, "chat", str(row.position))
        return self._sealer.open(base64.b64decode(row.content), context).decode()

    def _open_prekey(self, row: prekeys.HandsetPreKeyRow) -> bytes:
        return self._sealer.open(row.sealed, (row.number, "prekey", row.kind, row.key_id))
