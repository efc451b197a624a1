"""Registrations whose outcome is unknown."""

import sqlalchemy as sa
from alembic import op

from tidings.storage import types

revision = "0010"
down_revision = "0009"


def upgrade() -> None:
    op.create_table(
        "pending_registrations",
        sa.Column("account", types.key(20), primary_key=True),
        sa.Column("by_code", sa.Boolean, nullable=False),
        sa.Column("data_key", types.blob(), nullable=False),
        sa.Column("sealed", types.blob(), nullable=False),
        mysql_engine="InnoDB",
    )
