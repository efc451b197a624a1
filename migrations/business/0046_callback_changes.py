"""Replays and purges of many callbacks that Webapps carry out."""

import sqlalchemy as sa
from alembic import op

from tidings.storage import types

revision = "0046"
down_revision = "0045"
# The oldest program that works on the tables after this migration.
COMPATIBLE_FROM = "0026"


def upgrade() -> None:
    op.create_table(
        "callback_changes",
        sa.Column("id", types.key(16), primary_key=True),
        sa.Column("account", types.key(20), nullable=False),
        sa.Column("action", types.key(8), nullable=False),
        sa.Column("choice", types.text(255), nullable=False),
        sa.Column("requested_by", types.text(255), nullable=False),
        sa.Column("total", sa.Integer, nullable=False),
        sa.Column("started_at", types.milliseconds(), nullable=False),
        sa.Column("done", sa.Integer, nullable=False),
        sa.Column("stay", sa.Integer, nullable=False),
        sa.Column("waits", types.text(255), nullable=False),
        sa.Column("problem", types.text(255), nullable=False),
        sa.Column("is_stopped", sa.Boolean, nullable=False),
        sa.Column("has_ended", sa.Boolean, nullable=False),
        sa.Column("reported_at", types.milliseconds(), nullable=False),
        sa.Index("callback_changes_by_account", "account", "started_at"),
        mysql_engine="InnoDB",
    )
