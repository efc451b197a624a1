"""Lists of messages on an index that a delivered message does not change; room for the times of messages."""

import sqlalchemy as sa
from alembic import op

revision = "0043"
down_revision = "0042"
# The oldest program that works on the tables after this migration.
COMPATIBLE_FROM = "0026"

TIMES = ("sent_at", "delivered_at", "read_at")


def upgrade() -> None:
    op.add_column("messages", sa.Column("listing", sa.SmallInteger, nullable=False, server_default="0"))
    op.drop_index("messages_by_kind", "messages")
    op.create_index("messages_by_kind", "messages", ["account", "kind", "listing", "id"])
    if op.get_bind().dialect.name != "sqlite":
        # A time that takes the place of 0 changes no row's size, so no page is split.
        changes = ", ".join(f"ALTER {time} SET DEFAULT 0" for time in TIMES)
        op.execute(f"ALTER TABLE messages {changes}")
