"""Text that a message's statuses return to the business."""

import sqlalchemy as sa
from alembic import op

from tidings.storage import types

revision = "0035"
down_revision = "0033"
# The oldest program that works on the tables after this migration.
COMPATIBLE_FROM = "0026"


def upgrade() -> None:
    op.add_column("messages", sa.Column("callback_data", types.text(512)))
