"""Audit of callbacks that were deleted unposted."""

import sqlalchemy as sa
from alembic import op

from tidings.storage import types

revision = "0019"
down_revision = "0018"


def upgrade() -> None:
    op.create_table(
        "callback_purges",
        sa.Column("at", types.milliseconds(), primary_key=True),
        sa.Column("shard", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("purged_by", types.text(255), nullable=False),
        sa.Column("choice", types.text(255), nullable=False),
        sa.Column("deleted", sa.Integer, nullable=False),
        mysql_engine="InnoDB",
    )
