"""Tables of the Coreapp: shards, accounts, contacts, sessions, messages, jobs, callbacks."""

import sqlalchemy as sa
from alembic import op

from tidings.storage import types

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    op.create_table(
        "shards",
        sa.Column("shard", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("owner", types.key(64), nullable=False),
        sa.Column("address", types.key(255), nullable=False),
        sa.Column("epoch", sa.BigInteger, nullable=False),
        sa.Column("heartbeat_at", types.milliseconds(), nullable=False),
        mysql_engine="InnoDB",
    )
    op.create_table(
        "accounts",
        sa.Column("number", types.key(20), primary_key=True),
        sa.Column("registration_id", sa.Integer, nullable=False),
        sa.Column("identity_key", types.blob(), nullable=False),
        sa.Column("device_token", types.blob(), nullable=False),
        sa.Column("data_key", types.blob(), nullable=False),
        mysql_engine="InnoDB",
    )
    op.create_table(
        "own_prekeys",
        sa.Column("account", types.key(20), primary_key=True),
        sa.Column("kind", types.key(8), primary_key=True),
        sa.Column("key_id", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("sealed", types.blob(), nullable=False),
        mysql_engine="InnoDB",
    )
    op.create_table(
        "contacts",
        sa.Column("account", types.key(20), primary_key=True),
        sa.Column("wa_id", types.key(20), primary_key=True),
        sa.Column("registered", sa.Boolean, nullable=False),
        sa.Column("checked_at", types.milliseconds(), nullable=False),
        mysql_engine="InnoDB",
    )
    op.create_table(
        "sessions",
        sa.Column("account", types.key(20), primary_key=True),
        sa.Column("peer", types.key(20), primary_key=True),
        sa.Column("sending", types.blob(), nullable=False),
        sa.Column("receiving", types.blob(), nullable=False),
        sa.Column("had_kyber", sa.Boolean, nullable=False),
        mysql_engine="InnoDB",
    )
    op.create_table(
        "messages",
        sa.Column("id", types.key(64), primary_key=True),
        sa.Column("account", types.key(20), nullable=False),
        sa.Column("shard", sa.Integer, nullable=False),
        sa.Column("peer", types.key(20), nullable=False),
        sa.Column("kind", types.key(16), nullable=False),
        sa.Column("status", sa.SmallInteger, nullable=False),
        sa.Column("created_at", types.milliseconds(), nullable=False),
        sa.Column("request_id", types.key(64), nullable=False),
        mysql_engine="InnoDB",
    )
    op.create_table(
        "jobs",
        sa.Column("id", types.key(64), primary_key=True),
        sa.Column("shard", sa.Integer, nullable=False),
        sa.Column("account", types.key(20), nullable=False),
        sa.Column("peer", types.key(20), nullable=False),
        sa.Column("state", sa.SmallInteger, nullable=False),
        sa.Column("kind", types.key(16), nullable=False),
        sa.Column("body", types.blob(), nullable=False),
        sa.Column("created_at", types.milliseconds(), nullable=False),
        mysql_engine="InnoDB",
    )
    op.create_table(
        "callbacks",
        sa.Column("seq", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("shard", sa.Integer, nullable=False),
        sa.Column("account", types.key(20), nullable=False),
        sa.Column("subject", types.key(64), nullable=False),
        sa.Column("kind", types.key(20), nullable=False),
        sa.Column("body", types.blob(), nullable=False),
        sa.Column("state", sa.SmallInteger, nullable=False),
        sa.Column("attempt", sa.Integer, nullable=False),
        sa.Column("due_at", types.milliseconds(), nullable=False),
        sa.Column("created_at", types.milliseconds(), nullable=False),
        sa.Column("last_error", types.text(255), nullable=False),
        sa.Index("callbacks_by_shard", "shard", "state", "seq"),
        mysql_engine="InnoDB",
    )
