"""Cloud API: time at which a file expires, and resumable uploads, blocked users, QR codes, settings."""

import sqlalchemy as sa
from alembic import op

from tidings.storage import types

revision = "0038"
down_revision = "0037"
# The oldest program that works on the tables after this migration.
COMPATIBLE_FROM = "0026"


def upgrade() -> None:
    op.add_column("media", sa.Column("cloud_expires_at", types.milliseconds()))
    op.create_table(
        "cloud_uploads",
        sa.Column("id", types.key(64), primary_key=True),
        sa.Column("account", types.key(20), nullable=False),
        sa.Column("mime_type", types.key(255), nullable=False),
        sa.Column("size", sa.BigInteger, nullable=False),
        sa.Column("received", sa.BigInteger, nullable=False),
        sa.Column("created_at", types.milliseconds(), nullable=False),
        sa.Column("media_id", types.key(36)),
        mysql_engine="InnoDB",
    )
    op.create_index("cloud_uploads_by_time", "cloud_uploads", ["account", "created_at"])
    op.create_table(
        "cloud_upload_parts",
        sa.Column("upload_id", types.key(64), primary_key=True),
        sa.Column("position", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("account", types.key(20), nullable=False),
        sa.Column("size", sa.BigInteger, nullable=False),
        sa.Column("file", types.key(64), nullable=False),
        mysql_engine="InnoDB",
    )
    op.create_table(
        "blocked_users",
        sa.Column("account", types.key(20), primary_key=True),
        sa.Column("wa_id", types.key(20), primary_key=True),
        sa.Column("blocked_at", types.milliseconds(), nullable=False),
        mysql_engine="InnoDB",
    )
    op.create_table(
        "message_qr_codes",
        sa.Column("account", types.key(20), primary_key=True),
        sa.Column("code", types.key(32), primary_key=True),
        sa.Column("prefilled_message", types.text(140), nullable=False),
        sa.Column("created_at", types.milliseconds(), nullable=False),
        mysql_engine="InnoDB",
    )
    op.create_table(
        "cloud_settings",
        sa.Column("account", types.key(20), primary_key=True),
        sa.Column("kind", types.key(64), primary_key=True),
        sa.Column("content", types.long_text(), nullable=False),
        mysql_engine="InnoDB",
    )
