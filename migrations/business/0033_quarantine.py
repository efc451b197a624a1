"""Items that ended a process or a shard while they were handled."""

import sqlalchemy as sa
from alembic import op

from tidings.storage import types

revision = "0033"
down_revision = "0032"
# The oldest program that works on the tables after this migration.
COMPATIBLE_FROM = "0026"


def upgrade() -> None:
    op.create_table(
        "quarantine",
        sa.Column("kind", types.key(16), primary_key=True),
        sa.Column("id", types.key(64), primary_key=True),
        sa.Column("peer", types.key(40), nullable=False, server_default=""),
        sa.Column("attempts", sa.Integer, nullable=False),
        sa.Column("last_error", types.text(255), nullable=False),
        sa.Column("tried_at", types.milliseconds(), nullable=False),
        sa.Column("body", types.blob()),
        mysql_engine="InnoDB",
    )
