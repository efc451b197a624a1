"""Templates; time of the last message of each recipient, and their unread messages."""

import sqlalchemy as sa
from alembic import op

from tidings.storage import types

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    op.create_table(
        "templates",
        sa.Column("account", types.key(20), primary_key=True),
        sa.Column("name", types.key(512), primary_key=True),
        sa.Column("language", types.key(16), primary_key=True),
        sa.Column("namespace", types.key(64), nullable=False),
        sa.Column("category", types.key(32), nullable=False),
        sa.Column("status", types.key(16), nullable=False),
        sa.Column("components", types.long_text(), nullable=False),
        sa.Column("created_at", types.milliseconds(), nullable=False),
        mysql_engine="InnoDB",
    )
    op.create_table(
        "template_versions",
        sa.Column("account", types.key(20), primary_key=True),
        sa.Column("version", sa.BigInteger, nullable=False),
        mysql_engine="InnoDB",
    )
    op.create_table(
        "threads",
        sa.Column("account", types.key(20), primary_key=True),
        sa.Column("peer", types.key(20), primary_key=True),
        sa.Column("heard_at", types.milliseconds(), nullable=False),
        mysql_engine="InnoDB",
    )
    op.create_table(
        "unread_messages",
        sa.Column("account", types.key(20), primary_key=True),
        sa.Column("peer", types.key(20), primary_key=True),
        sa.Column("id", types.key(64), primary_key=True),
        sa.Column("received_at", types.milliseconds(), nullable=False),
        sa.Index("unread_messages_by_time", "account", "received_at"),
        mysql_engine="InnoDB",
    )
