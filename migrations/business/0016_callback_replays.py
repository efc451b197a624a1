"""Audit of replayed dead letters."""

import sqlalchemy as sa
from alembic import op

from tidings.storage import types

revision = "0016"
down_revision = "0015"


def upgrade() -> None:
    op.create_table(
        "callback_replays",
        sa.Column("seq", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("at", types.milliseconds(), primary_key=True),
        sa.Column("shard", sa.Integer, nullable=False),
        sa.Column("replayed_by", types.text(255), nullable=False),
        sa.Index("callback_replays_by_time", "at"),
        mysql_engine="InnoDB",
    )
