"""Sender and members of a group, for the tests of Sender Keys."""

from __future__ import annotations

from dataclasses import dataclass

from tidings import e2ee

DISTRIBUTION_ID = bytes(range(16))
# A Montgomery key, -1 modulo the prime, to which no point of the Edwards curve belongs.
MINUS_ONE = (2**255 - 20).to_bytes(32, "little")


@dataclass
class Group:
    """Sender, and one member who has processed the sender's distribution message."""

    sender: e2ee.SenderKeyRecord
    member: e2ee.SenderKeyRecord


def group(distribution_id: bytes = DISTRIBUTION_ID) -> Group:
    sender = e2ee.SenderKeyRecord.create(distribution_id)
    return Group(sender, joined(sender))


def joined(sender: e2ee.SenderKeyRecord) -> e2ee.SenderKeyRecord:
    """Return the record of a member who joins the chain now."""
    member = e2ee.SenderKeyRecord(sender.distribution_id)
    member.process(sender.distribution())
    return member


def reload(record: e2ee.SenderKeyRecord) -> e2ee.SenderKeyRecord:
    """Store and load the record, as a crash and a restart do."""
    return e2ee.SenderKeyRecord.from_bytes(record.to_bytes())


def skip(record: e2ee.SenderKeyRecord, count: int) -> None:
    for _ in range(count):
        record.encrypt(b"")
