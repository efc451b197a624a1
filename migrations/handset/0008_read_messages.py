"""Whether a received message was read: in a terminal, or by a robot. A page records it in its chats."""

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"
# The oldest program that works on the tables after this migration.
COMPATIBLE_FROM = "0004"


def upgrade() -> None:
    # Existing messages count as read, and so do those that a terminal of the previous release adds.
    op.add_column("handset_inbox", sa.Column("is_read", sa.Boolean, nullable=False, server_default="1"))
