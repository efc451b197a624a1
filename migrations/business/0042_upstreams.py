"""Numbers that send through the real Cloud API, and the ids that it gave to their messages."""

import sqlalchemy as sa
from alembic import op

from tidings.storage import types

revision = "0042"
down_revision = "0041"
# The oldest program that works on the tables after this migration.
COMPATIBLE_FROM = "0026"


def upgrade() -> None:
    op.create_table(
        "upstreams",
        sa.Column("account", types.key(20), primary_key=True),
        sa.Column("base_url", types.text(255), nullable=False),
        sa.Column("phone_number_id", types.key(20), nullable=False),
        sa.Column("waba_id", types.key(20), nullable=False),
        sa.Column("rate", sa.Integer, nullable=False),
        sa.Column("fault", types.text(255), nullable=False),
        sa.Column("changed_at", types.milliseconds(), nullable=False),
        mysql_engine="InnoDB",
    )
    op.create_table(
        "upstream_ids",
        sa.Column("account", types.key(20), primary_key=True),
        sa.Column("id", types.key(64), primary_key=True),
        sa.Column("wamid", types.key(255), nullable=False),
        sa.Column("created_at", types.milliseconds(), nullable=False),
        sa.Index("upstream_ids_by_wamid", "account", "wamid"),
        sa.Index("upstream_ids_by_age", "created_at"),
        mysql_engine="InnoDB",
    )
