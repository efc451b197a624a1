"""Decisions about sessions: which session decrypts a received message, and when one replaces another.

These functions do no I/O: bytes and records in, bytes and records out. The caller commits a returned record together
with the effects of its message, before the message is acknowledged or a ciphertext is sent.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping

from tidings import e2ee
from tidings.wire import device

# Kind of envelope by kind of message.
KINDS: Mapping[int, str] = {e2ee.PREKEY: device.PREKEY, e2ee.MESSAGE: device.MESSAGE}

MAX_REFS = 100  # message ids per resend request
MAX_ATTEMPTS = 4  # attempts to resend one message


@dataclasses.dataclass(frozen=True, slots=True)
class PreKeys:
    """Lookups of a device's private pre-keys by id; each returns None for one that is gone."""

    signed: Callable[[int], e2ee.SignedPreKey | None]
    one_time: Callable[[int], e2ee.PreKey | None]
    kyber: Callable[[int], e2ee.KyberPreKey | None]


def read(
    record: e2ee.SessionRecord | None, body: bytes, spend: e2ee.Spend = e2ee.unlimited
) -> tuple[e2ee.SessionRecord, bytes]:
    """Decrypt an envelope of kind `message`; return the given record, which has changed, and the plaintext.

    Raises `e2ee.NoSession` when the record is None, and as `SessionRecord.decrypt`, with nothing changed.

    spend: called before more work is done for this sender than nearly every message needs
    """
    if record is None:
        raise e2ee.NoSession("a message without a session")
    return record, record.decrypt(e2ee.MESSAGE, body, spend)


def read_first(
    record: e2ee.SessionRecord | None,
    own: e2ee.IdentityKeyPair,
    first: e2ee.PreKeySignalMessage,
    body: bytes,
    prekeys: PreKeys,
    *,
    check: Callable[[e2ee.PreKeySignalMessage], None],
    allow_downgrade: bool = False,
    spend: e2ee.Spend = e2ee.unlimited,
) -> tuple[e2ee.SessionRecord, bytes]:
    """Decrypt an envelope of kind `prekey`; return (record, plaintext).

    When the returned record is not the given one, this message set up a session: store it in place of the other, and
    delete the one-time pre-keys that `first` names, or store its base key when it names none. A changed identity is
    trusted, and sessions with the old one are dropped: notify the user before the call if necessary.

    Raises `e2ee.UnknownPreKey` when a pre-key is gone; `e2ee.PostQuantumRequired` when the record had post-quantum
    protection, the message has none, and `allow_downgrade` is not set; and the errors of `check` and of
    `SessionRecord.decrypt`. Nothing has changed then.

    first: parsed message
    body:  bytes of the message
    check: raises an error for a message that must not open a session (see `tidings.client.base_keys`)
    spend: as in `read`; includes the set-up of a session
    """
    if needs_setup(record, first):
        check(first)
        if not spend(e2ee.SETUP_STEPS):
            raise e2ee.OverBudget("one more session")
        record = _respond(record, own, first, prekeys, allow_downgrade=allow_downgrade)
    assert record is not None
    return record, record.decrypt(e2ee.PREKEY, body, spend)


def needs_setup(record: e2ee.SessionRecord | None, first: e2ee.PreKeySignalMessage) -> bool:
    """Return whether a first message starts a new session, rather than belonging to a known one."""
    return record is None or record.needs_setup(first)


def initiate(
    own: e2ee.IdentityKeyPair,
    registration_id: int,
    bundle: e2ee.PreKeyBundle,
    existing: e2ee.SessionRecord | None = None,
    *,
    require_pq: bool = False,
) -> e2ee.SessionRecord:
    """Set up a session from a bundle, whose identity is trusted.

    Messages in flight on `existing` stay readable, unless the bundle has another identity.

    Raises `e2ee.InvalidKey`, `e2ee.InvalidSignature`; `e2ee.PostQuantumRequired` for a bundle without Kyber when
    `require_pq`, or when `existing` had it.

    registration_id: our own
    """
    try:
        return e2ee.SessionRecord.initiate(own, registration_id, bundle, require_pq=require_pq, existing=existing)
    except e2ee.UntrustedIdentity:
        return e2ee.SessionRecord.initiate(own, registration_id, bundle, require_pq=require_pq)


def replace(fresh: e2ee.SessionRecord, before: e2ee.SessionRecord | None) -> None:
    """Replace `before`, which was in use while `fresh` was set up in the background.

    Messages in flight on `before` stay readable, unless it has another identity.
    """
    if before is not None and has_identity(before, fresh.remote_identity):
        fresh.supersede(before)


def has_identity(record: e2ee.SessionRecord | None, identity_key: bytes) -> bool:
    """Return whether there is a session, and its peer has this identity key (33 typed bytes)."""
    return record is not None and record.remote_identity == identity_key


def is_repairable(error: Exception) -> bool:
    """Return whether to request a message again after this error, if necessary on a new session.

    False for messages that were read before, and for those that a man in the middle may have weakened or written.
    """
    return isinstance(error, e2ee.InvalidMessage | e2ee.NoSession | e2ee.CorruptState)


def tag_of(record: e2ee.SessionRecord | None) -> bytes:
    """Return 8 public bytes that distinguish the session from others with the same peer; zeros for no session."""
    return record.base_key[1:9] if record is not None else bytes(8)


def _respond(
    record: e2ee.SessionRecord | None,
    own: e2ee.IdentityKeyPair,
    first: e2ee.PreKeySignalMessage,
    prekeys: PreKeys,
    *,
    allow_downgrade: bool,
) -> e2ee.SessionRecord:
    signed = prekeys.signed(first.signed_prekey_id)
    if signed is None:
        raise e2ee.UnknownPreKey(f"signed pre-key {first.signed_prekey_id}")
    one_time = prekeys.one_time(first.prekey_id) if first.prekey_id is not None else None
    kyber = prekeys.kyber(first.kyber_prekey_id) if first.kyber_prekey_id is not None else None
    existing = record if has_identity(record, first.identity_key) else None
    return e2ee.SessionRecord.respond(existing, own, first, signed, one_time, kyber, allow_downgrade=allow_downgrade)
