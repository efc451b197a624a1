"""Base keys of first messages that used no one-time pre-key."""

import sqlalchemy as sa
from alembic import op

from tidings.storage import types

revision = "0032"
down_revision = "0031"
# The oldest program that works on the tables after this migration.
COMPATIBLE_FROM = "0026"


def upgrade() -> None:
    op.create_table(
        "base_keys",
        sa.Column("owner", types.key(20), primary_key=True),
        sa.Column("base_key", types.key(64), primary_key=True),
        sa.Column("peer", types.key(20), nullable=False),
        sa.Column("signed_prekey_id", sa.Integer, nullable=False),
        mysql_engine="InnoDB",
    )
    op.create_index("base_keys_by_peer", "base_keys", ["owner", "peer"])
