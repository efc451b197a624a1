"""Callback URLs of the Cloud API's webhooks."""

import sqlalchemy as sa
from alembic import op

from tidings.storage import types

revision = "0035"
down_revision = "0034"
# The oldest program that works on the tables after this migration.
COMPATIBLE_FROM = "0026"


def upgrade() -> None:
    op.create_table(
        "cloud_callbacks",
        sa.Column("node_id", types.key(20), primary_key=True),
        sa.Column("account", types.key(20), nullable=False),
        sa.Column("content", types.blob(), nullable=False),
        mysql_engine="InnoDB",
    )
