"""Metadata of the handset family, and the tables that no row class declares."""

import sqlalchemy as sa

from tidings.storage import types

metadata = types.TableFamily()

inbox = metadata.table(
    "handset_inbox",
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
)

outbox = metadata.table(
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
    sa.Column("group_id", types.key(32), nullable=False),
    sa.Column("epoch", sa.BigInteger, nullable=False),
    sa.Column("draft", types.blob()),
)

key_holders = metadata.table(
    "handset_key_holders",
    sa.Column("number", types.key(20), primary_key=True),
    sa.Column("group_id", types.key(32), primary_key=True),
    sa.Column("peer", types.key(20), primary_key=True),
    sa.Index("handset_key_holders_by_peer", "number", "peer"),
)

progress = metadata.table(
    "handset_progress",
    sa.Column("fleet", types.key(40), primary_key=True),
    # Highest position of the inbox that has been shown.
    sa.Column("shown", sa.BigInteger, nullable=False),
)
