"""Media files and pending downloads."""

import sqlalchemy as sa
from alembic import op

from tidings.storage import types

revision = "0006"
down_revision = "0005"


def upgrade() -> None:
    op.create_table(
        "media",
        sa.Column("id", types.key(36), primary_key=True),
        sa.Column("account", types.key(20), nullable=False),
        sa.Column("kind", types.key(16), nullable=False),
        sa.Column("mime_type", types.key(255), nullable=False),
        sa.Column("size", sa.BigInteger, nullable=False),
        sa.Column("sha256", types.key(64), nullable=False),
        sa.Column("file", types.key(64), nullable=False),
        sa.Column("filename", types.text(255), nullable=False),
        sa.Column("created_at", types.milliseconds(), nullable=False),
        sa.Column("used_at", types.milliseconds(), nullable=False),
        sa.Column("blob", types.blob(), nullable=True),
        sa.Column("blob_expires_at", types.milliseconds(), nullable=True),
        sa.Index("media_by_file", "file"),
        mysql_engine="InnoDB",
    )
    op.create_table(
        "media_downloads",
        sa.Column("id", types.key(64), primary_key=True),
        sa.Column("shard", sa.Integer, nullable=False),
        sa.Column("account", types.key(20), nullable=False),
        sa.Column("sender", types.key(20), nullable=False),
        sa.Column("group_id", types.key(64), nullable=False),
        sa.Column("content", types.blob(), nullable=False),
        sa.Column("timestamp", types.milliseconds(), nullable=False),
        sa.Column("attempt", sa.Integer, nullable=False),
        sa.Column("due_at", types.milliseconds(), nullable=False),
        sa.Column("created_at", types.milliseconds(), nullable=False),
        sa.Column("request_id", types.key(64), nullable=False),
        sa.Index("media_downloads_by_due", "shard", "due_at"),
        mysql_engine="InnoDB",
    )
