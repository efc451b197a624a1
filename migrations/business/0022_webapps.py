"""Webapps that share a database: live processes, rate limits, versions of cached data."""

import sqlalchemy as sa
from alembic import op

from tidings.storage import types

revision = "0022"
down_revision = "0021"


def upgrade() -> None:
    op.create_table(
        "webapp_nodes",
        sa.Column("incarnation", types.key(32), primary_key=True),
        sa.Column("node", types.key(255), nullable=False),
        sa.Column("started_at", types.milliseconds(), nullable=False),
        sa.Column("heartbeat_at", types.milliseconds(), nullable=False),
        mysql_engine="InnoDB",
    )
    op.create_table(
        "rate_limits",
        sa.Column("name", types.key(32), primary_key=True),
        sa.Column("full_at", sa.BigInteger, nullable=False),
        mysql_engine="InnoDB",
    )
    op.create_table(
        "changes",
        sa.Column("subject", types.key(32), primary_key=True),
        sa.Column("version", sa.BigInteger, nullable=False),
        mysql_engine="InnoDB",
    )
