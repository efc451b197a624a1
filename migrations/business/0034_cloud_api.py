"""Cloud API: text that a message's statuses return to the business, and subscriptions of apps."""

import sqlalchemy as sa
from alembic import op

from tidings.storage import types

revision = "0034"
down_revision = "0033"
# The oldest program that works on the tables after this migration.
COMPATIBLE_FROM = "0026"


def upgrade() -> None:
    op.add_column("messages", sa.Column("callback_data", types.text(512)))
    op.create_table(
        "cloud_subscriptions",
        sa.Column("waba_id", types.key(20), primary_key=True),
        sa.Column("app_id", types.key(20), primary_key=True),
        sa.Column("created_at", types.milliseconds(), nullable=False),
        mysql_engine="InnoDB",
    )
