"""Request ids of jobs and callbacks, and idempotency keys."""

import sqlalchemy as sa
from alembic import op

from tidings.storage import types

revision = "0005"
down_revision = "0004"


def upgrade() -> None:
    for table in ("jobs", "callbacks"):
        op.add_column(table, sa.Column("request_id", types.key(64), nullable=False, server_default=""))
    op.create_table(
        "idempotency_keys",
        sa.Column("account", types.key(20), primary_key=True),
        sa.Column("resource", types.key(16), primary_key=True),
        sa.Column("key_hash", types.fixed_bytes(32), primary_key=True),
        sa.Column("fingerprint", types.fixed_bytes(32), nullable=False),
        sa.Column("answer", types.key(64), nullable=False),
        sa.Column("created_at", types.milliseconds(), nullable=False),
        sa.Index("idempotency_keys_by_age", "created_at"),
        mysql_engine="InnoDB",
    )
