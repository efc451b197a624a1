"""Messages to groups with copies in memory only."""

import sqlalchemy as sa
from alembic import op

from tidings.storage import types

revision = "0009"
down_revision = "0008"


def upgrade() -> None:
    op.create_table(
        "group_messages",
        sa.Column("seq", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("sender", types.key(15), nullable=False),
        sa.Column("id", types.key(64), nullable=False),
        sa.Column("group_id", types.key(32), nullable=False),
        sa.Column("timestamp", types.milliseconds(), nullable=False),
        sa.Column("expires_at", types.milliseconds(), nullable=False),
        sa.Column("body", types.blob(), nullable=False),
        sa.Column("refs", types.long_text(), nullable=False),
        sa.Column("trace", types.key(64), nullable=False),
        sa.Column("copies", types.long_text(), nullable=False),
        mysql_engine="InnoDB",
    )
