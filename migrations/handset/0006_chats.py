"""Chats and preferences of the numbers that a page shows."""

import sqlalchemy as sa
from alembic import op

from tidings.storage import types

revision = "0006"
down_revision = "0005"
# The oldest program that works on the tables after this migration.
COMPATIBLE_FROM = "0004"


def upgrade() -> None:
    op.create_table(
        "handset_chat_items",
        sa.Column("number", types.key(20), primary_key=True),
        sa.Column("position", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("chat", types.key(32), nullable=False),
        sa.Column("id", types.key(64), nullable=False),
        sa.Column("author", types.key(20), nullable=False),
        sa.Column("kind", types.key(16), nullable=False),
        sa.Column("at", types.milliseconds(), nullable=False),
        sa.Column("content", types.long_text(), nullable=False),
        sa.Column("state", types.key(12), nullable=False),
        sa.Column("about", types.key(64), nullable=False),
        sa.Column("source", sa.BigInteger, nullable=False),
        sa.Column("receipts", types.long_text(), nullable=False),
        sa.Index("handset_chat_items_by_chat", "number", "chat", "position"),
        sa.Index("handset_chat_items_by_id", "number", "id"),
        sa.Index("handset_chat_items_by_about", "number", "about"),
        mysql_engine="InnoDB",
    )
    op.create_table(
        "handset_preferences",
        sa.Column("number", types.key(20), primary_key=True),
        sa.Column("is_open", sa.Boolean, nullable=False),
        sa.Column("is_online", sa.Boolean, nullable=False),
        sa.Column("sends_read", sa.Boolean, nullable=False),
        sa.Column("name", types.text(128), nullable=False),
        sa.Column("blocked", types.long_text(), nullable=False),
        mysql_engine="InnoDB",
    )
