"""Identities of recipients and their acknowledgement."""

import sqlalchemy as sa
from alembic import op

from tidings.storage import types

revision = "0007"
down_revision = "0006"


def upgrade() -> None:
    op.create_table(
        "identities",
        sa.Column("account", types.key(20), primary_key=True),
        sa.Column("peer", types.key(20), primary_key=True),
        sa.Column("hash", types.fixed_bytes(8), nullable=False),
        sa.Column("created_at", types.milliseconds(), nullable=False),
        sa.Column("acknowledged", sa.Boolean, nullable=False),
        sa.Index("identities_by_acknowledgement", "account", "acknowledged", "peer"),
        mysql_engine="InnoDB",
    )
