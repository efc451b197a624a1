"""Registration, profile, certificates, media providers and sticker packs."""

import sqlalchemy as sa
from alembic import op

from tidings.storage import types

revision = "0004"
down_revision = "0003"


def upgrade() -> None:
    op.create_table(
        "registrations",
        sa.Column("account", types.key(20), primary_key=True),
        sa.Column("shards", sa.Integer, nullable=False),
        sa.Column("pin_hash", types.key(255), nullable=False),
        sa.Column("registered_at", types.milliseconds(), nullable=False),
        mysql_engine="InnoDB",
    )
    op.create_table(
        "profiles",
        sa.Column("account", types.key(20), primary_key=True),
        sa.Column("about", types.text(255), nullable=False),
        sa.Column("photo_type", types.key(32), nullable=False),
        sa.Column("photo", types.blob(), nullable=False),
        sa.Column("business", types.long_text(), nullable=False),
        mysql_engine="InnoDB",
    )
    op.create_table(
        "certificates",
        sa.Column("account", types.key(20), primary_key=True),
        sa.Column("kind", types.key(16), primary_key=True),
        sa.Column("content", types.blob(), nullable=False),
        mysql_engine="InnoDB",
    )
    op.create_table(
        "media_providers",
        sa.Column("account", types.key(20), primary_key=True),
        sa.Column("name", types.text(128), primary_key=True),
        sa.Column("kind", types.key(16), nullable=False),
        sa.Column("config", types.blob(), nullable=False),
        mysql_engine="InnoDB",
    )
    op.create_table(
        "stickerpacks",
        sa.Column("id", types.key(36), primary_key=True),
        sa.Column("account", types.key(20), nullable=False),
        sa.Column("publisher", types.text(128), nullable=False),
        sa.Column("name", types.text(128), nullable=False),
        sa.Column("ios_app_store_link", types.text(1024), nullable=False),
        sa.Column("android_app_store_link", types.text(1024), nullable=False),
        sa.Index("stickerpacks_by_account", "account", "id"),
        mysql_engine="InnoDB",
    )
    op.create_table(
        "stickers",
        sa.Column("pack", types.key(36), primary_key=True),
        sa.Column("position", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("image_data_id", types.text(128), nullable=False),
        sa.Column("emojis", types.text(255), nullable=False),
        mysql_engine="InnoDB",
    )
