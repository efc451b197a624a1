"""What is kept of a message until it is delivered, so that it can be encrypted again for a recipient who asks for it.

    kept: attempts (1), session (8), asked by (8), then the message's id, a zero and the content, sealed for this
          account and recipient; with the id in the context sealing would take half as long again

session: of the latest attempt, the first bytes of its base key, zeros when that is not known: the message waited
for a session. asked by: a digest of the envelope that asked last. Neither is a secret.
"""

from __future__ import annotations

import dataclasses
import hashlib
import struct

from coreapp.account.own_device import OwnDevice
from coreapp.peers.sessions import SessionStore
from tidings import e2ee
from tidings.client import sessions
from tidings.storage.business import messages

MAX_CONTENT = 32 * 1024  # bytes; a longer content cannot be sent again
_HEAD = struct.Struct(">B8s8s")
_NONE = bytes(8)


@dataclasses.dataclass(frozen=True, slots=True)
class Kept:
    """A message as it is kept. attempts: to send it again, so far."""

    attempts: int
    session: bytes
    asked_by: bytes
    sealed: bytes = dataclasses.field(repr=False)

    @property
    def is_session_known(self) -> bool:
        return self.session != _NONE

    def after(self, record: e2ee.SessionRecord | None, envelope_id: str) -> Kept:
        """Asked for once more, by this envelope, and encrypted in this session; `None` for one yet to be opened."""
        return Kept(self.attempts + 1, sessions.tag_of(record), digest_of(envelope_id), self.sealed)

    def encode(self) -> bytes:
        return _HEAD.pack(min(self.attempts, 255), self.session, self.asked_by) + self.sealed

    @classmethod
    def decode(cls, blob: bytes) -> Kept:
        attempts, session, asked_by = _HEAD.unpack_from(blob)
        return cls(attempts, session, asked_by, blob[_HEAD.size :])


class SentContents:
    """Seals and opens the contents of one account."""

    def __init__(self, device: OwnDevice, store: SessionStore) -> None:
        self._device = device
        self._store = store

    def keep(self, message_id: str, peer: str, content: bytes, *, encrypted: bool) -> bytes | None:
        """What to store of a new message; encrypted: in the session in memory, and nothing was since."""
        if len(content) > MAX_CONTENT:
            return None
        record = self._store.in_memory(peer) if encrypted else None
        labelled = message_id.encode() + b"\0" + content
        sealed = self._device.sealer.seal(labelled, context=(self._device.number, peer, "kept"))
        return _HEAD.pack(0, sessions.tag_of(record), _NONE) + sealed

    def open(self, row: messages.Kept, kept: Kept) -> bytes:
        """The content. Raises `e2ee.CorruptState`."""
        labelled = self._device.sealer.open(kept.sealed, (self._device.number, row.peer, "kept"))
        message_id, _, content = labelled.partition(b"\0")
        if message_id != row.id.encode():
            raise e2ee.CorruptState("the content of another message")
        return content


def digest_of(envelope_id: str) -> bytes:
    """What tells this envelope from others of the same sender."""
    return hashlib.sha256(envelope_id.encode()).digest()[:8]
