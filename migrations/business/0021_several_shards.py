"""Several shards: layout, Coreapp processes, successor of a shard's owner, and history of leases."""

import sqlalchemy as sa
from alembic import op

from tidings.storage import types

revision = "0021"
down_revision = "0020"


def upgrade() -> None:
    op.create_table(
        "shard_layout",
        sa.Column("id", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("layout", sa.Integer, nullable=False),
        sa.Column("shards", sa.Integer, nullable=False),
        mysql_engine="InnoDB",
    )
    op.create_table(
        "coreapp_nodes",
        sa.Column("node", types.key(64), primary_key=True),
        sa.Column("incarnation", types.key(32), nullable=False),
        sa.Column("address", types.key(255), nullable=False),
        sa.Column("started_at", types.milliseconds(), nullable=False),
        sa.Column("heartbeat_at", types.milliseconds(), nullable=False),
        sa.Column("interval_ms", sa.Integer, nullable=False),
        mysql_engine="InnoDB",
    )
    op.create_table(
        "shard_leases",
        sa.Column("shard", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("epoch", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("owner", types.key(64), nullable=False),
        sa.Column("layout", sa.Integer, nullable=False),
        sa.Column("claimed_at", types.milliseconds(), nullable=False),
        sa.Column("ended_at", types.milliseconds(), nullable=False),
        sa.Column("ending", types.key(16), nullable=False),
        mysql_engine="InnoDB",
    )
    op.add_column("shards", sa.Column("successor", types.key(64), nullable=False, server_default=""))
    # The first layout has the existing number of shards.
    count = op.get_bind().execute(sa.text("SELECT COUNT(*) FROM shards")).scalar_one()
    if count:
        op.execute(sa.text(f"INSERT INTO shard_layout (id, layout, shards) VALUES (0, 0, {int(count)})"))  # noqa: S608
