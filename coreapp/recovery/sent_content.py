"""Content kept of a message until it is delivered, so that it can be encrypted again when the recipient requests it.

Layout: attempts (1 byte), session (8), requested_by (8), then the message's id, a zero byte and the content, sealed for
this account and recipient. With the id in the sealing context, sealing would take half as long again.

session: first bytes of the base key of the latest attempt's session; zeros if it is not known because the message
    waited for a session. Not secret.
requested_by: digest of the envelope that requested it last. Not secret.
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
class KeptContents:
    """A message as it is kept."""

    attempts: int  # repetitions so far
    session: bytes  # first bytes of the base key of the latest attempt's session; zeros if unknown
    requested_by: bytes  # digest of the envelope that requested it last
    sealed: bytes = dataclasses.field(repr=False)

    @property
    def is_session_known(self) -> bool:
        return self.session != _NONE

    def after(self, record: e2ee.SessionRecord | None, envelope_id: str) -> KeptContents:
        """Return the state after one more request by this envelope.

        record: session in which it is encrypted; None for one that is not opened yet
        """
        return KeptContents(self.attempts + 1, sessions.tag_of(record), digest_of(envelope_id), self.sealed)

    def encode(self) -> bytes:
        return _HEAD.pack(min(self.attempts, 255), self.session, self.requested_by) + self.sealed

    @classmethod
    def decode(cls, blob: bytes) -> KeptContents:
        attempts, session, requested_by = _HEAD.unpack_from(blob)
        return cls(attempts, session, requested_by, blob[_HEAD.size :])


@dataclasses.dataclass(eq=False, repr=False, slots=True)
class SentContents:
    """Seals and opens the kept contents of one account."""

    device: OwnDevice
    store: SessionStore

    def keep(self, message_id: str, peer: str, content: bytes, *, encrypted: bool) -> bytes | None:
        """Return the bytes to store for a new message; None if it is too long.

        encrypted: whether it was encrypted in the session in memory, which has not encrypted anything since
        """
        if len(content) > MAX_CONTENT:
            return None
        record = self.store.in_memory(peer) if encrypted else None
        labelled = message_id.encode() + b"\0" + content
        sealed = self.device.sealer.seal(labelled, context=(self.device.number, peer, "kept"))
        return _HEAD.pack(0, sessions.tag_of(record), _NONE) + sealed

    def open(self, row: messages.KeptMessage, kept: KeptContents) -> bytes:
        """Return the content. Raises `e2ee.CorruptState`."""
        labelled = self.device.sealer.open(kept.sealed, (self.device.number, row.peer, "kept"))
        message_id, _, content = labelled.partition(b"\0")
        if message_id != row.id.encode():
            raise e2ee.CorruptState("the content belongs to another message")
        return content


def digest_of(envelope_id: str) -> bytes:
    """Return a digest that distinguishes this envelope from others of the same sender."""
    return hashlib.sha256(envelope_id.encode()).digest()[:8]
