"""Decisions about the keys of messages to groups: which one reads a message, and who has to be given which.

Everybody in a group encrypts under a key of their own, which the others were given inside their sessions. Nothing here
waits, stores or sends: a key that a message was encrypted or read with is kept in one commit with that message.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from tidings import e2ee

# Between two requests to one participant about one group, and between two answers to one.
ASK_SECONDS = 3600.0


def read(record: e2ee.SenderKeyRecord | None, body: bytes, spend: e2ee.Spend = e2ee.unlimited) -> bytes:
    """The plaintext of an envelope of the kind `group`; record: what its sender has given for this group.

    Raises `e2ee.NoSession` when that is nothing, or another key: ask the sender for it; and as
    `SenderKeyRecord.decrypt`. Nothing has changed then.
    """
    if record is None:
        raise e2ee.NoSession("no sender key")
    if e2ee.GroupMessage.parse(body).distribution_id != record.distribution_id:
        raise e2ee.NoSession("another sender key")
    return record.decrypt(body, spend)


def take_up(record: e2ee.SenderKeyRecord | None, distribution: bytes) -> e2ee.SenderKeyRecord:
    """What to keep of a sender who has given this key: another record when it is not of the one before.

    It is theirs only if it came inside a session with them, and good only while they are in the group.
    Raises `e2ee.InvalidMessage` for what is no key, with nothing changed.
    """
    distribution_id = e2ee.DistributionMessage.parse(distribution).distribution_id
    if record is None or record.distribution_id != distribution_id:
        # They have started over, as after a restored backup.
        record = e2ee.SenderKeyRecord(distribution_id)
    record.process(distribution)
    return record


def replace(record: e2ee.SenderKeyRecord | None) -> e2ee.SenderKeyRecord:
    """A new key of our own, which nobody has, in the place of another. It keeps that one's distribution id."""
    return e2ee.SenderKeyRecord.create(record.distribution_id if record is not None else None)


def must_be_replaced(holders: Collection[str], members: Collection[str]) -> bool:
    """Whether somebody may have our key who is not in the group (any more).

    holders: whoever may have been given it; members: who is in the group now.
    """
    return not set(holders) <= set(members)


def lacking(holders: Collection[str], members: Iterable[str]) -> list[str]:
    """The members who need our key. holders: whoever was given it, or will have been before the next message."""
    return [member for member in members if member not in holders]
