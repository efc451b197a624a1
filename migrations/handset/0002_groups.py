"""Groups and sender keys."""

import sqlalchemy as sa
from alembic import op

from tidings.storage import types

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    op.add_column("handset_inbox", sa.Column("group_id", types.key(32), nullable=False, server_default=""))
    op.add_column("handset_outbox", sa.Column("group_id", types.key(32), nullable=False, server_default=""))
    op.add_column("handset_outbox", sa.Column("epoch", sa.BigInteger, nullable=False, server_default="0"))
    op.add_column("handset_outbox", sa.Column("draft", types.blob()))
    op.create_table(
        "handset_groups",
        sa.Column("number", types.key(20), primary_key=True),
        sa.Column("group_id", types.key(32), primary_key=True),
        sa.Column("subject", types.text(100), nullable=False),
        sa.Column("epoch", sa.BigInteger, nullable=False),
        sa.Column("version", sa.BigInteger, nullable=False),
        mysql_engine="InnoDB",
    )
    op.create_table(
        "handset_sender_keys",
        sa.Column("number", types.key(20), primary_key=True),
        sa.Column("group_id", types.key(32), primary_key=True),
        sa.Column("sender", types.key(20), primary_key=True),
        sa.Column("record", types.blob(), nullable=False),
        mysql_engine="InnoDB",
    )
    op.create_table(
        "handset_key_holders",
        sa.Column("number", types.key(20), primary_key=True),
        sa.Column("group_id", types.key(32), primary_key=True),
        sa.Column("peer", types.key(20), primary_key=True),
        sa.Index("handset_key_holders_by_peer", "number", "peer"),
        mysql_engine="InnoDB",
    )
