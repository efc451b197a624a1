"""Groups and their members."""

import sqlalchemy as sa
from alembic import op

from tidings.storage import types

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    op.add_column("envelopes", sa.Column("group_id", types.key(32), nullable=False, server_default=""))
    # The copies of a message to a group have the same id for all of its members.
    op.create_index("envelopes_by_copy", "envelopes", ["sender", "id", "recipient"], unique=True)
    op.drop_index("envelopes_by_id", "envelopes")
    op.create_table(
        "group_chats",
        sa.Column("id", types.key(32), primary_key=True),
        sa.Column("creator", types.key(15), nullable=False),
        sa.Column("subject", types.text(100), nullable=False),
        sa.Column("created_at", types.milliseconds(), nullable=False),
        sa.Column("epoch", sa.BigInteger, nullable=False),
        sa.Column("code", types.key(32), nullable=False),
        sa.Column("icon_type", types.key(16), nullable=False),
        sa.Index("group_chats_by_code", "code", unique=True),
        mysql_engine="InnoDB",
    )
    op.create_table(
        "group_chat_members",
        sa.Column("group_id", types.key(32), primary_key=True),
        sa.Column("number", types.key(15), primary_key=True),
        sa.Column("admin", sa.Boolean, nullable=False),
        sa.Column("position", sa.BigInteger, nullable=False),
        sa.Index("group_chat_members_by_number", "number"),
        mysql_engine="InnoDB",
    )
    op.create_table(
        "group_chat_icons",
        sa.Column("group_id", types.key(32), primary_key=True),
        sa.Column("data", types.blob(), nullable=False),
        mysql_engine="InnoDB",
    )
    op.create_table(
        "group_chat_sends",
        sa.Column("sender", types.key(15), primary_key=True),
        sa.Column("id", types.key(64), primary_key=True),
        sa.Column("taken_at", types.milliseconds(), nullable=False),
        sa.Index("group_chat_sends_by_age", "taken_at"),
        mysql_engine="InnoDB",
    )
