"""Wanted number of shards while a change is requested."""

import sqlalchemy as sa
from alembic import op

revision = "0023"
down_revision = "0022"


def upgrade() -> None:
    zero = sa.text("0")
    op.add_column("shard_layout", sa.Column("wanted", sa.Integer, nullable=False, server_default=zero))
    op.add_column("shard_layout", sa.Column("moved", sa.BigInteger, nullable=False, server_default=zero))
