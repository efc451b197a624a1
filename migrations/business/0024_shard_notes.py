"""Cross-shard messages."""

import sqlalchemy as sa
from alembic import op

from tidings.storage import types

revision = "0024"
down_revision = "0023"


def upgrade() -> None:
    op.create_table(
        "shard_notes",
        sa.Column("id", types.key(64), primary_key=True),
        sa.Column("shard", sa.Integer, nullable=False),
        sa.Column("account", types.key(20), nullable=False),
        sa.Column("kind", types.key(16), nullable=False),
        sa.Column("peer", types.key(20), nullable=False),
        sa.Column("group_id", types.key(64), nullable=False),
        sa.Column("body", types.blob(), nullable=False),
        sa.Column("created_at", types.milliseconds(), nullable=False),
        sa.Index("shard_notes_by_shard", "shard", "id"),
        mysql_engine="InnoDB",
    )
