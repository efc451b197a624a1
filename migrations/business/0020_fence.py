"""Commits of each shard, counted: what its owner writes in every transaction."""

import sqlalchemy as sa
from alembic import op

revision = "0020"
down_revision = "0019"


def upgrade() -> None:
    op.add_column("shards", sa.Column("commits", sa.BigInteger, nullable=False, server_default="0"))
