"""Trace ids that senders give their envelopes in logs."""

import sqlalchemy as sa
from alembic import op

from tidings.storage import types

revision = "0004"
down_revision = "0003"


def upgrade() -> None:
    op.add_column("envelopes", sa.Column("trace", types.key(64), nullable=False, server_default=""))
