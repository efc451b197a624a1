"""Users, revoked tokens and application settings."""

import sqlalchemy as sa
from alembic import op

from tidings.storage import types

revision = "0001"
down_revision = None


def upgrade() -> None:
    op.create_table(
        "users",
        sa.Column("username", types.text(64), primary_key=True),
        sa.Column("account", types.key(20), nullable=False),
        sa.Column("role", types.key(16), nullable=False),
        sa.Column("password_hash", types.key(255), nullable=False),
        sa.Column("must_change_password", sa.Boolean, nullable=False),
        sa.Column("created_at", types.milliseconds(), nullable=False),
        mysql_engine="InnoDB",
    )
    op.create_table(
        "revoked_tokens",
        sa.Column("jti", types.key(32), primary_key=True),
        sa.Column("expires_at", types.milliseconds(), nullable=False),
        sa.Column("revoked_at", types.milliseconds(), nullable=False),
        mysql_engine="InnoDB",
    )
    op.create_index("revoked_tokens_by_time", "revoked_tokens", ["revoked_at"])
    op.create_index("revoked_tokens_by_expiry", "revoked_tokens", ["expires_at"])
    op.create_table(
        "application_settings",
        sa.Column("account", types.key(20), primary_key=True),
        sa.Column("version", sa.BigInteger, nullable=False),
        sa.Column("document", types.long_text(), nullable=False),
        mysql_engine="InnoDB",
    )
