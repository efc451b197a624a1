"""Tokens of numbers that have unregistered, so that the call may be repeated."""

import sqlalchemy as sa
from alembic import op

from tidings.storage import types

revision = "0013"
down_revision = "0012"
COMPATIBLE_FROM = "0009"


def upgrade() -> None:
    op.add_column("former_identities", sa.Column("token_hash", types.fixed_bytes(32), nullable=True))
