"""History: callbacks that were accepted, attempts at callbacks, times of messages; lists of messages on indexes."""

import sqlalchemy as sa
from alembic import op

from tidings.storage import types

revision = "0041"
down_revision = "0040"
# The oldest program that works on the tables after this migration.
COMPATIBLE_FROM = "0026"


def upgrade() -> None:
    op.create_table(
        "callback_history",
        sa.Column("account", types.key(20), primary_key=True),
        sa.Column("last_seq", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("first_seq", sa.BigInteger, nullable=False),
        sa.Column("size", sa.Integer, nullable=False),
        sa.Column("ended_at", types.milliseconds(), nullable=False),
        sa.Column("fingerprints", types.blob(), nullable=False),
        sa.Column("entries", types.blob(), nullable=False),
        sa.Column("texts", types.blob(), nullable=False),
        mysql_engine="InnoDB",
    )
    op.create_table(
        "callback_attempts",
        sa.Column("account", types.key(20), primary_key=True),
        sa.Column("seq", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("slot", sa.SmallInteger, primary_key=True, autoincrement=False),
        sa.Column("attempt", sa.Integer, nullable=False),
        sa.Column("at", types.milliseconds(), nullable=False),
        sa.Column("took", sa.Integer, nullable=False),
        sa.Column("status", sa.SmallInteger),
        sa.Column("error", types.text(255), nullable=False),
        sa.Column("response", types.fixed_bytes(1088)),
        mysql_engine="InnoDB",
    )
    op.add_column("callbacks", sa.Column("recipient", types.key(40)))
    for time in ("encrypted_at", "sent_at", "delivered_at", "read_at", "failed_at"):
        op.add_column("messages", sa.Column(time, types.milliseconds()))
    op.add_column("messages", sa.Column("failure", sa.Integer))
    op.create_index("messages_by_kind", "messages", ["account", "kind", "status", "id"])
    op.create_index("messages_by_peer", "messages", ["account", "peer", "id"])
    op.add_column("group_receipts", sa.Column("delivered_at", types.milliseconds()))
    op.add_column("group_receipts", sa.Column("read_at", types.milliseconds()))
