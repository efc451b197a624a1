"""Slot of each stored envelope, by which a device logged in as partitions reads its part of a mailbox."""

import collections
import zlib

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"

SLOTS = 32
# Kinds of envelopes that are in slot 0 if they name a group. All others are in the slot of their sender.
OF_GROUPS = ("group", "group_changed", "delivered", "read")
# Maximum number of senders in one statement.
CHUNK = 500

envelopes = sa.table(
    "envelopes",
    sa.column("sender", sa.String),
    sa.column("kind", sa.String),
    sa.column("group_id", sa.String),
    sa.column("slot", sa.SmallInteger),
)


def upgrade() -> None:
    op.add_column("envelopes", sa.Column("slot", sa.SmallInteger, nullable=False, server_default=sa.text("0")))
    of_sender = sa.or_(envelopes.c.group_id == "", envelopes.c.kind.not_in(OF_GROUPS))
    by_slot: dict[int, list[str]] = collections.defaultdict(list)
    for sender in op.get_bind().scalars(sa.select(envelopes.c.sender).where(of_sender).distinct()):
        by_slot[zlib.crc32(sender.encode()) % SLOTS].append(sender)
    for slot, senders in by_slot.items():
        for start in range(0, len(senders), CHUNK):
            some = envelopes.c.sender.in_(senders[start : start + CHUNK])
            op.execute(envelopes.update().where(some, of_sender).values(slot=slot))
    op.create_index("envelopes_by_slot", "envelopes", ["recipient", "slot", "seq"])
