"""Number of commits per shard, which the owner increments in every transaction."""

import sqlalchemy as sa
from alembic import op

revision = "0020"
down_revision = "0019"


def upgrade() -> None:
    op.add_column("shards", sa.Column("commits", sa.BigInteger, nullable=False, server_default="0"))
