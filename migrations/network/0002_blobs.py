"""Encrypted files that devices leave for each other."""

import sqlalchemy as sa
from alembic import op

from tidings.storage import types

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    op.create_table(
        "blobs",
        sa.Column("id", types.key(43), primary_key=True),
        sa.Column("owner", types.key(15), nullable=False),
        sa.Column("file", types.key(64), nullable=False),
        sa.Column("size", sa.BigInteger, nullable=False),
        sa.Column("expires_at", types.milliseconds(), nullable=False),
        sa.Index("blobs_by_file", "file"),
        sa.Index("blobs_by_expiry", "expires_at"),
        mysql_engine="InnoDB",
    )
