"""File stores: the directory or bucket that holds the files named by this database."""

import sqlalchemy as sa
from alembic import op

from tidings.storage import types

revision = "0010"
down_revision = "0009"
COMPATIBLE_FROM = "0009"


def upgrade() -> None:
    op.create_table(
        "file_stores",
        sa.Column("name", types.key(16), primary_key=True),
        sa.Column("marker", types.key(64), nullable=False),
        sa.Column("recorded_at", types.milliseconds(), nullable=False),
        mysql_engine="InnoDB",
    )
