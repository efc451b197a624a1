"""Cloud API: time at which a file expires."""

import sqlalchemy as sa
from alembic import op

from tidings.storage import types

revision = "0038"
down_revision = "0036"
# The oldest program that works on the tables after this migration.
COMPATIBLE_FROM = "0026"


def upgrade() -> None:
    op.add_column("media", sa.Column("cloud_expires_at", types.milliseconds()))
