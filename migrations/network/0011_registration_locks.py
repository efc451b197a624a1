"""Registration locks, codes by requesting address, and wrong tries by number."""

import sqlalchemy as sa
from alembic import op

from tidings.storage import types

revision = "0011"
down_revision = "0010"
COMPATIBLE_FROM = "0009"


def upgrade() -> None:
    op.create_table(
        "registration_challenges",
        sa.Column("number", types.key(15), primary_key=True),
        sa.Column("origin", types.key(64), primary_key=True),
        sa.Column("code_hash", types.fixed_bytes(32), nullable=False),
        sa.Column("digits", sa.Integer, nullable=False),
        sa.Column("issued_at", types.milliseconds(), nullable=False),
        sa.Column("expires_at", types.milliseconds(), nullable=False),
        sa.Column("attempts_left", sa.Integer, nullable=False),
        sa.Column("window_started_at", types.milliseconds(), nullable=False),
        sa.Column("issued_in_window", sa.Integer, nullable=False),
        sa.Index("registration_challenges_by_time", "issued_at"),
        mysql_engine="InnoDB",
    )
    op.create_table(
        "registration_tries",
        sa.Column("number", types.key(15), primary_key=True),
        sa.Column("full_at", types.milliseconds(), nullable=False),
        sa.Index("registration_tries_by_time", "full_at"),
        mysql_engine="InnoDB",
    )
    op.create_table(
        "registration_locks",
        sa.Column("number", types.key(15), primary_key=True),
        sa.Column("pin_hash", types.key(255), nullable=False),
        sa.Column("active_at", types.milliseconds(), nullable=False),
        sa.Column("daily_full_at", types.milliseconds(), nullable=False),
        sa.Column("yearly_full_at", types.milliseconds(), nullable=False),
        sa.Index("registration_locks_by_activity", "active_at", "number"),
        mysql_engine="InnoDB",
    )
