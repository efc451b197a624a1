"""Tables of recipients: devices, pre-keys, sessions, inbox, outbox."""

import sqlalchemy as sa
from alembic import op

from tidings.storage import types

revision = "0001"
down_revision = None


def upgrade() -> None:
    op.create_table(
        "handset_devices",
        sa.Column("number", types.key(20), primary_key=True),
        sa.Column("fleet", types.key(40), nullable=False),
        sa.Column("registration_id", sa.Integer, nullable=False),
        sa.Column("identity", types.blob(), nullable=False),
        sa.Column("token", types.blob()),
        sa.Column("next_key_id", sa.Integer, nullable=False),
        sa.Column("blocked", types.key(20), nullable=False),
        sa.Index("handset_devices_by_fleet", "fleet"),
        mysql_engine="InnoDB",
    )
    op.create_table(
        "handset_prekeys",
        sa.Column("number", types.key(20), primary_key=True),
        sa.Column("key_id", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("kind", types.key(12), nullable=False),
        sa.Column("sealed", types.blob(), nullable=False),
        mysql_engine="InnoDB",
    )
    op.create_table(
        "handset_sessions",
        sa.Column("number", types.key(20), primary_key=True),
        sa.Column("peer", types.key(20), primary_key=True),
        sa.Column("sending", types.blob(), nullable=False),
        sa.Column("receiving", types.blob(), nullable=False),
        mysql_engine="InnoDB",
    )
    op.create_table(
        "handset_inbox",
        sa.Column("fleet", types.key(40), primary_key=True),
        sa.Column("position", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("number", types.key(20), nullable=False),
        sa.Column("peer", types.key(20), nullable=False),
        sa.Column("id", types.key(64), nullable=False),
        sa.Column("kind", types.key(16), nullable=False),
        sa.Column("received_at", types.milliseconds(), nullable=False),
        sa.Column("content", types.long_text(), nullable=False),
        sa.Index("handset_inbox_by_id", "id", "number", "peer", unique=True),
        mysql_engine="InnoDB",
    )
    op.create_table(
        "handset_outbox",
        sa.Column("fleet", types.key(40), primary_key=True),
        sa.Column("position", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("number", types.key(20), nullable=False),
        sa.Column("peer", types.key(20), nullable=False),
        sa.Column("id", types.key(64), nullable=False),
        sa.Column("kind", types.key(16), nullable=False),
        sa.Column("due_at", types.milliseconds(), nullable=False),
        sa.Column("body", types.blob(), nullable=False),
        sa.Column("refs", types.long_text(), nullable=False),
        mysql_engine="InnoDB",
    )
    op.create_table(
        "handset_progress",
        sa.Column("fleet", types.key(40), primary_key=True),
        sa.Column("shown", sa.BigInteger, nullable=False),
        mysql_engine="InnoDB",
    )
