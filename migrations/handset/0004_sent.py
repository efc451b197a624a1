"""Sent messages, kept for a time because a peer may be unable to decrypt them."""

import sqlalchemy as sa
from alembic import op

from tidings.storage import types

revision = "0004"
down_revision = "0003"


def upgrade() -> None:
    op.create_table(
        "handset_sent",
        sa.Column("fleet", types.key(40), primary_key=True),
        sa.Column("position", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("number", types.key(20), nullable=False),
        sa.Column("peer", types.key(20), nullable=False),
        sa.Column("id", types.key(64), nullable=False),
        sa.Column("content", types.blob(), nullable=False),
        sa.Column("session", types.fixed_bytes(8), nullable=False),
        sa.Column("sent_at", types.milliseconds(), nullable=False),
        sa.Column("attempts", sa.Integer, nullable=False),
        sa.Column("asked_by", types.key(64), nullable=False),
        sa.Column("waits", sa.Boolean, nullable=False),
        sa.Index("handset_sent_by_id", "id"),
        mysql_engine="InnoDB",
    )
