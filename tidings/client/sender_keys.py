"""Decisions about sender keys of groups: which key reads a message, and which participants need our key.

Each participant encrypts under its own sender key, which the others receive inside their sessions. These functions do
no I/O: the caller commits a changed key together with the message that it encrypted or decrypted.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from tidings import e2ee

# Seconds between two key requests to one participant about one group, and between two responses to one.
KEY_REQUEST_SECONDS = 3600.0


def read(record: e2ee.SenderKeyRecord | None, body: bytes, spend: e2ee.Spend = e2ee.unlimited) -> bytes:
    """Return the plaintext of an envelope of kind `group`.

    Raises `e2ee.NoSession` when there is no record, or one of another key: request the key from the sender. Otherwise
    raises as `SenderKeyRecord.decrypt`. The record is unchanged after an error.

    record: sender keys of the sender for this group; None when none has been received
    """
    if record is None:
        raise e2ee.NoSession("no sender key")
    if e2ee.GroupMessage.parse(body).distribution_id != record.distribution_id:
        raise e2ee.NoSession("another sender key")
    return record.decrypt(body, spend)


def add_key(record: e2ee.SenderKeyRecord | None, distribution: bytes) -> e2ee.SenderKeyRecord:
    """Return the sender's record with this key added, or a new record when the distribution id differs.

    The caller must know that the key arrived inside a session with the sender, and use it only while the sender is in
    the group. Raises `e2ee.InvalidMessage` for an invalid key, with nothing changed.
    """
    distribution_id = e2ee.DistributionMessage.parse(distribution).distribution_id
    if record is None or record.distribution_id != distribution_id:
        # The sender has reset its state, for example after restoring a backup.
        record = e2ee.SenderKeyRecord(distribution_id)
    record.process(distribution)
    return record


def replace(record: e2ee.SenderKeyRecord | None) -> e2ee.SenderKeyRecord:
    """Return a new own key that no participant has yet. It keeps the distribution id of the replaced one."""
    return e2ee.SenderKeyRecord.create(record.distribution_id if record is not None else None)


def must_be_replaced(holders: Collection[str], members: Collection[str]) -> bool:
    """Return whether a number outside the group may have our key.

    holders: numbers that may have received the key
    members: numbers in the group now
    """
    return not set(holders) <= set(members)


def members_without_key(holders: Collection[str], members: Iterable[str]) -> list[str]:
    """Return the members that lack our key.

    holders: numbers that have received it, or will before the next message
    """
    return [member for member in members if member not in holders]
