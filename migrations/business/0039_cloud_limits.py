"""Cloud API: limits of numbers with what they count, recipients of test numbers, and ids of users."""

import sqlalchemy as sa
from alembic import op

from tidings.storage import types

revision = "0039"
down_revision = "0038"
# The oldest program that works on the tables after this migration.
COMPATIBLE_FROM = "0026"


def upgrade() -> None:
    op.create_table(
        "cloud_limits",
        sa.Column("account", types.key(20), primary_key=True),
        sa.Column("tier", types.key(16), nullable=False),
        sa.Column("throughput", types.key(16), nullable=False),
        sa.Column("upgrade_ends_at", types.milliseconds(), nullable=False),
        sa.Column("is_test", sa.Boolean(), nullable=False),
        sa.Column("announced_tier", types.key(16), nullable=False),
        sa.Column("announced_throughput", types.key(16), nullable=False),
        sa.Column("reached", sa.BigInteger, nullable=False),
        mysql_engine="InnoDB",
    )
    op.create_table(
        "cloud_test_recipients",
        sa.Column("account", types.key(20), primary_key=True),
        sa.Column("recipient", types.key(20), primary_key=True),
        mysql_engine="InnoDB",
    )
    op.create_table(
        "cloud_reached",
        sa.Column("account", types.key(20), primary_key=True),
        sa.Column("position", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("peer", types.key(20), nullable=False),
        sa.Column("reached_at", types.milliseconds(), nullable=False),
        sa.Index("cloud_reached_by_peer", "account", "peer", "reached_at"),
        mysql_engine="InnoDB",
    )
    op.create_table(
        "cloud_calls",
        sa.Column("account", types.key(20), primary_key=True),
        sa.Column("minute", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("calls", sa.Integer, nullable=False),
        mysql_engine="InnoDB",
    )
    op.create_table(
        "cloud_users",
        sa.Column("account", types.key(20), primary_key=True),
        sa.Column("user_id", types.key(40), primary_key=True),
        sa.Column("peer", types.key(20), nullable=False),
        mysql_engine="InnoDB",
    )
