"""Progress of a fleet's sent messages and of recorded chats, which outlives the rows that are deleted."""

import sqlalchemy as sa
from alembic import op

from tidings.storage import types

revision = "0007"
down_revision = "0006"
# The oldest program that works on the tables after this migration.
COMPATIBLE_FROM = "0004"


def upgrade() -> None:
    op.add_column("handset_progress", sa.Column("sent", sa.BigInteger, nullable=False, server_default="0"))
    # Positions may have restarted below those of recorded messages.
    op.execute(
        "UPDATE handset_progress SET sent = COALESCE((SELECT MAX(i.source) FROM handset_chat_items i"
        " JOIN handset_devices d ON d.number = i.number"
        " WHERE d.fleet = handset_progress.fleet AND i.author = i.number), 0)"
    )
    op.create_table(
        "handset_chat_progress",
        sa.Column("number", types.key(20), primary_key=True),
        sa.Column("position", sa.BigInteger, nullable=False),
        sa.Column("received", sa.BigInteger, nullable=False),
        sa.Column("sent", sa.BigInteger, nullable=False),
        mysql_engine="InnoDB",
    )
