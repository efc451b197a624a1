"""Decisions about sessions: which one reads a message that arrived, and what becomes of the one that there is.

Bytes and records in, bytes and records out: nothing here waits, stores or sends. Whoever calls keeps what comes back:
a record and what follows from its message in one commit, before the message is acknowledged or a ciphertext leaves.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping

from tidings import e2ee
from tidings.wire import device

# The kind of envelope for each kind of message.
KINDS: Mapping[int, str] = {e2ee.PREKEY: device.PREKEY, e2ee.MESSAGE: device.MESSAGE}

MAX_REFS = 100  # messages that one envelope asks for
MAX_ATTEMPTS = 4  # to send one message again


@dataclasses.dataclass(frozen=True, slots=True)
class PreKeys:
    """Where a device finds its private pre-keys: each is asked for by id, and answers `None` for one that is gone."""

    signed: Callable[[int], e2ee.SignedPreKey | None]
    one_time: Callable[[int], e2ee.PreKey | None]
    kyber: Callable[[int], e2ee.KyberPreKey | None]


def read(
    record: e2ee.SessionRecord | None, body: bytes, spend: e2ee.Spend = e2ee.unlimited
) -> tuple[e2ee.SessionRecord, bytes]:
    """(record, plaintext) of an envelope of the kind `message`; the record is the one given, and has changed.

    spend: asked before more is done for this sender than nearly every message needs.

    Raises `e2ee.NoSession` when there is no record, and as `SessionRecord.decrypt`, with nothing changed.
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
    allow_downgrade: bool = False,
    spend: e2ee.Spend = e2ee.unlimited,
) -> tuple[e2ee.SessionRecord, bytes]:
    """(record, plaintext) of an envelope of the kind `prekey`; body: its bytes; first: what they were parsed to;
    spend: as of `read`, a set-up included.

    Another record than the one given was set up by this message: keep it in the other's place, and delete the one-time
    pre-keys that `first` names. Another identity than the record's is trusted, and its sessions are given up: tell
    whoever cares before.

    Raises `e2ee.UnknownPreKey` when a pre-key is gone; `e2ee.PostQuantumRequired` when the record had post-quantum
    protection, the message has none, and `allow_downgrade` is not set; and as `SessionRecord.decrypt`. Nothing has
    changed then.
    """
    if needs_setup(record, first):
        if not spend(e2ee.SETUP_STEPS):
            raise e2ee.OverBudget("one more session")
        record = _respond(record, own, first, prekeys, allow_downgrade=allow_downgrade)
    assert record is not None
    return record, record.decrypt(e2ee.PREKEY, body, spend)


def needs_setup(record: e2ee.SessionRecord | None, first: e2ee.PreKeySignalMessage) -> bool:
    """Whether a first message opens a session; if not, it belongs to one that is known."""
    return record is None or record.needs_setup(first)


def initiate(
    own: e2ee.IdentityKeyPair,
    registration_id: int,
    bundle: e2ee.PreKeyBundle,
    existing: e2ee.SessionRecord | None = None,
    *,
    require_pq: bool = False,
) -> e2ee.SessionRecord:
    """A new session with the owner of a bundle, whose identity is trusted; registration_id: our own.

    What is under way on `existing` can still be read, unless the bundle is of another identity.

    Raises `e2ee.InvalidKey`, `e2ee.InvalidSignature`; `e2ee.PostQuantumRequired` for a bundle without Kyber when
    `require_pq`, or when `existing` had it.
    """
    try:
        return e2ee.SessionRecord.initiate(own, registration_id, bundle, require_pq=require_pq, existing=existing)
    except e2ee.UntrustedIdentity:
        return e2ee.SessionRecord.initiate(own, registration_id, bundle, require_pq=require_pq)


def replace(fresh: e2ee.SessionRecord, before: e2ee.SessionRecord | None) -> None:
    """Put a session that was set up at leisure in the place of one that was in use meanwhile, and ends here: what is
    under way on that can still be read, unless it is of another identity."""
    if before is not None and goes_on(before, fresh.remote_identity):
        fresh.supersede(before)


def goes_on(record: e2ee.SessionRecord | None, identity_key: bytes) -> bool:
    """Whether a session outlives the news that its peer has this identity key, 33 typed bytes."""
    return record is not None and record.remote_identity == identity_key


def is_repairable(error: Exception) -> bool:
    """Whether a message that failed with this is asked for again, on a new session if need be.

    Not one that was read before, nor one that whoever sits between may have weakened or written.
    """
    return isinstance(error, e2ee.InvalidMessage | e2ee.NoSession | e2ee.CorruptState)


def tag_of(record: e2ee.SessionRecord | None) -> bytes:
    """8 bytes that tell a session from others with the same peer, zeros for none. They are no secret."""
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
    existing = record if goes_on(record, first.identity_key) else None
    return e2ee.SessionRecord.respond(existing, own, first, signed, one_time, kyber, allow_downgrade=allow_downgrade)
