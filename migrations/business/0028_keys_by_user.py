"""User of each idempotency key."""

import sqlalchemy as sa
from alembic import op

from tidings.storage import types

revision = "0028"
down_revision = "0027"
# The oldest program that works on the tables after this migration.
COMPATIBLE_FROM = "0026"


def upgrade() -> None:
    op.add_column("idempotency_keys", sa.Column("username", types.text(64)))
