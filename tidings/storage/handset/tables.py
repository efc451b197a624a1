"""Metadata and tables of the handset family, used by processes with handsets."""

import sqlalchemy as sa

from tidings.storage import types

metadata = sa.MetaData()

devices = sa.Table(
    "handset_devices",
    metadata,
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

prekeys = sa.Table(
    "handset_prekeys",
    metadata,
    sa.Column("number", types.key(20), primary_key=True),
    sa.Column("key_id", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("kind", types.key(12), nullable=False),
    sa.Column("sealed", types.blob(), nullable=False),
    sa.Column("created_at", types.milliseconds(), nullable=False),
    sa.Column("retired_at", types.milliseconds(), nullable=False),
    mysql_engine="InnoDB",
)

sessions = sa.Table(
    "handset_sessions",
    metadata,
    sa.Column("number", types.key(20), primary_key=True),
    sa.Column("peer", types.key(20), primary_key=True),
    sa.Column("sending", types.blob(), nullable=False),
    sa.Column("receiving", types.blob(), nullable=False),
    mysql_engine="InnoDB",
)

inbox = sa.Table(
    "handset_inbox",
    metadata,
    sa.Column("fleet", types.key(40), primary_key=True),
    sa.Column("position", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("number", types.key(20), nullable=False),
    sa.Column("peer", types.key(20), nullable=False),
    sa.Column("id", types.key(64), nullable=False),
    sa.Column("kind", types.key(16), nullable=False),
    sa.Column("received_at", types.milliseconds(), nullable=False),
    sa.Column("content", types.long_text(), nullable=False),
    sa.Column("group_id", types.key(32), nullable=False),
    sa.Index("handset_inbox_by_id", "id", "number", "peer", unique=True),
    mysql_engine="InnoDB",
)

outbox = sa.Table(
    "handset_outbox",
    metadata,
    sa.Column("fleet", types.key(40), primary_key=True),
    sa.Column("position", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("number", types.key(20), nullable=False),
    sa.Column("peer", types.key(20), nullable=False),
    sa.Column("id", types.key(64), nullable=False),
    sa.Column("kind", types.key(16), nullable=False),
    sa.Column("due_at", types.milliseconds(), nullable=False),
    sa.Column("body", types.blob(), nullable=False),
    sa.Column("refs", types.long_text(), nullable=False),
    sa.Column("group_id", types.key(32), nullable=False),
    sa.Column("epoch", sa.BigInteger, nullable=False),
    sa.Column("draft", types.blob()),
    mysql_engine="InnoDB",
)

sent = sa.Table(
    "handset_sent",
    metadata,
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

groups = sa.Table(
    "handset_groups",
    metadata,
    sa.Column("number", types.key(20), primary_key=True),
    sa.Column("group_id", types.key(32), primary_key=True),
    sa.Column("subject", types.text(100), nullable=False),
    sa.Column("epoch", sa.BigInteger, nullable=False),
    sa.Column("version", sa.BigInteger, nullable=False),
    mysql_engine="InnoDB",
)

sender_keys = sa.Table(
    "handset_sender_keys",
    metadata,
    sa.Column("number", types.key(20), primary_key=True),
    sa.Column("group_id", types.key(32), primary_key=True),
    sa.Column("sender", types.key(20), primary_key=True),
    sa.Column("record", types.blob(), nullable=False),
    mysql_engine="InnoDB",
)

key_holders = sa.Table(
    "handset_key_holders",
    metadata,
    sa.Column("number", types.key(20), primary_key=True),
    sa.Column("group_id", types.key(32), primary_key=True),
    sa.Column("peer", types.key(20), primary_key=True),
    sa.Index("handset_key_holders_by_peer", "number", "peer"),
    mysql_engine="InnoDB",
)

progress = sa.Table(
    "handset_progress",
    metadata,
    sa.Column("fleet", types.key(40), primary_key=True),
    # Highest position of the inbox that has been shown.
    sa.Column("shown", sa.BigInteger, nullable=False),
    mysql_engine="InnoDB",
)
