"""Trace context of jobs, so that the process that sends a message continues its trace."""

import sqlalchemy as sa
from alembic import op

from tidings.storage import types

revision = "0025"
down_revision = "0024"


def upgrade() -> None:
    op.add_column("jobs", sa.Column("traceparent", types.key(64), nullable=False, server_default=""))
