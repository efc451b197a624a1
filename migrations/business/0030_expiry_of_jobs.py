"""Expiry time of jobs."""

import sqlalchemy as sa
from alembic import op

from tidings.storage import types

revision = "0030"
down_revision = "0029"
# The oldest program that works on the tables after this migration.
COMPATIBLE_FROM = "0026"


def upgrade() -> None:
    op.add_column("jobs", sa.Column("expires_at", types.milliseconds()))
