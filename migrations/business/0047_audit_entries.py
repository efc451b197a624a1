"""Audit of contents that were shown and numbers that were paused, and indexes for the audit of callbacks."""

import sqlalchemy as sa
from alembic import op

from tidings.storage import types

revision = "0047"
down_revision = "0046"
# The oldest program that works on the tables after this migration.
COMPATIBLE_FROM = "0026"


def upgrade() -> None:
    op.create_table(
        "audit_entries",
        sa.Column("id", types.key(16), primary_key=True),
        sa.Column("account", types.key(20), nullable=False),
        sa.Column("at", types.milliseconds(), nullable=False),
        sa.Column("action", types.key(32), nullable=False),
        sa.Column("subject", types.key(64), nullable=False),
        sa.Column("requested_by", types.text(255), nullable=False),
        sa.Index("audit_entries_by_time", "at"),
        sa.Index("audit_entries_by_account", "account", "at"),
        mysql_engine="InnoDB",
    )
    # Each is written by replays and purges only.
    op.create_index("callback_replays_by_shard", "callback_replays", ["shard", "at"])
    op.create_index("callback_purges_by_shard", "callback_purges", ["shard", "at"])
