"""Ids of the keys that the database is sealed under."""

import sqlalchemy as sa
from alembic import op

from tidings.storage import types

revision = "0017"
down_revision = "0016"


def upgrade() -> None:
    op.create_table(
        "key_checks",
        sa.Column("name", types.key(16), primary_key=True),
        sa.Column("key_id", types.key(16), nullable=False),
        sa.Column("previous", types.key(16), nullable=False),
        sa.Column("changed_at", types.milliseconds(), nullable=False),
        mysql_engine="InnoDB",
    )
