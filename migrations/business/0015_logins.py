"""Token buckets of logins, addresses that users logged in from, and revocation of all tokens of a user."""

import sqlalchemy as sa
from alembic import op

from tidings.storage import types

revision = "0015"
down_revision = "0014"


def upgrade() -> None:
    op.add_column("users", sa.Column("generation", sa.Integer, nullable=False, server_default="0"))
    op.create_table(
        "login_buckets",
        sa.Column("bucket", types.key(64), primary_key=True),
        sa.Column("full_at", types.milliseconds(), nullable=False),
        sa.Index("login_buckets_by_time", "full_at"),
        mysql_engine="InnoDB",
    )
    op.create_table(
        "login_origins",
        sa.Column("username", types.text(64), primary_key=True),
        sa.Column("origin", types.key(64), primary_key=True),
        sa.Column("seen_at", types.milliseconds(), nullable=False),
        sa.Index("login_origins_by_time", "seen_at"),
        mysql_engine="InnoDB",
    )
