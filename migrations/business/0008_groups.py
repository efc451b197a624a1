"""Groups, their members and sender keys."""

import sqlalchemy as sa
from alembic import op

from tidings.storage import types

revision = "0008"
down_revision = "0007"


def upgrade() -> None:
    # A group id is longer than a number.
    for table in ("jobs", "messages"):
        with op.batch_alter_table(table) as batch:
            batch.alter_column("peer", type_=types.key(40), existing_type=types.key(20), existing_nullable=False)
    op.create_table(
        "business_groups",
        sa.Column("account", types.key(20), primary_key=True),
        sa.Column("id", types.key(40), primary_key=True),
        sa.Column("subject", types.text(255), nullable=False),
        sa.Column("creator", types.key(20), nullable=False),
        sa.Column("created_at", sa.BigInteger, nullable=False),
        sa.Column("epoch", sa.BigInteger, nullable=False),
        sa.Column("participants", types.long_text(), nullable=False),
        sa.Column("has_icon", sa.Boolean, nullable=False),
        sa.Column("is_member", sa.Boolean, nullable=False),
        mysql_engine="InnoDB",
    )
    op.create_table(
        "own_sender_keys",
        sa.Column("account", types.key(20), primary_key=True),
        sa.Column("group_id", types.key(40), primary_key=True),
        sa.Column("epoch", sa.BigInteger, nullable=False),
        sa.Column("record", types.blob(), nullable=False),
        mysql_engine="InnoDB",
    )
    op.create_table(
        "sender_key_holders",
        sa.Column("account", types.key(20), primary_key=True),
        sa.Column("group_id", types.key(40), primary_key=True),
        sa.Column("member", types.key(20), primary_key=True),
        sa.Column("job", types.key(64), nullable=False),
        sa.Index("sender_key_holders_by_job", "account", "job"),
        mysql_engine="InnoDB",
    )
    op.create_table(
        "peer_sender_keys",
        sa.Column("account", types.key(20), primary_key=True),
        sa.Column("sender", types.key(20), primary_key=True),
        sa.Column("group_id", types.key(40), primary_key=True),
        sa.Column("record", types.blob(), nullable=False),
        mysql_engine="InnoDB",
    )
    op.create_table(
        "group_receipts",
        sa.Column("message_id", types.key(64), primary_key=True),
        sa.Column("member", types.key(20), primary_key=True),
        sa.Column("status", sa.SmallInteger, nullable=False),
        mysql_engine="InnoDB",
    )
    op.create_table(
        "unread_group_messages",
        sa.Column("id", types.key(64), primary_key=True),
        sa.Column("account", types.key(20), nullable=False),
        sa.Column("group_id", types.key(40), nullable=False),
        sa.Column("author", types.key(20), nullable=False),
        sa.Column("received_at", types.milliseconds(), nullable=False),
        sa.Index("unread_group_messages_by_time", "account", "group_id", "received_at"),
        sa.Index("unread_group_messages_by_age", "account", "received_at"),
        mysql_engine="InnoDB",
    )
