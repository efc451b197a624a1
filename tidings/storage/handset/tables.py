"""Metadata of the handset family, and the tables that no row class declares."""

import sqlalchemy as sa

from tidings.storage import types

metadata = types.TableFamily()

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
    # Last position of the outbox at the last start of the fleet. Rows behind it may be gone.
    sa.Column("sent", sa.BigInteger, nullable=False, server_default="0"),
)
