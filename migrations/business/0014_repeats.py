"""Sealed content of messages until they are delivered; undecryptable messages that were requested again."""

import sqlalchemy as sa
from alembic import op

from tidings.storage import types

revision = "0014"
down_revision = "0013"


def upgrade() -> None:
    op.add_column("messages", sa.Column("kept", types.blob()))
    op.create_table(
        "undecrypted_messages",
        sa.Column("id", types.key(64), primary_key=True),
        sa.Column("shard", sa.Integer, nullable=False),
        sa.Column("account", types.key(20), nullable=False),
        sa.Column("sender", types.key(20), nullable=False),
        sa.Column("timestamp", types.milliseconds(), nullable=False),
        sa.Column("due_at", types.milliseconds(), nullable=False),
        sa.Column("request_id", types.key(64), nullable=False),
        mysql_engine="InnoDB",
    )
