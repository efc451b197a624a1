"""Failed attempts at jobs; audit of jobs that were deleted unsent."""

import sqlalchemy as sa
from alembic import op

from tidings.storage import types

revision = "0026"
down_revision = "0025"


def upgrade() -> None:
    op.create_table(
        "job_errors",
        sa.Column("id", types.key(64), primary_key=True),
        sa.Column("attempts", sa.Integer, nullable=False),
        sa.Column("last_error", types.text(255), nullable=False),
        sa.Column("tried_at", types.milliseconds(), nullable=False),
        mysql_engine="InnoDB",
    )
    op.create_table(
        "job_purges",
        sa.Column("at", types.milliseconds(), primary_key=True),
        sa.Column("shard", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("purged_by", types.text(255), nullable=False),
        sa.Column("choice", types.text(255), nullable=False),
        sa.Column("deleted", sa.Integer, nullable=False),
        mysql_engine="InnoDB",
    )
