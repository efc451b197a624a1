"""Numbers of the installation, bare names of users of further numbers, and the number of quarantined deliveries."""

import sqlalchemy as sa
from alembic import op

from tidings.storage import types

revision = "0036"
down_revision = "0035"
# The oldest program that works on the tables after this migration.
COMPATIBLE_FROM = "0026"


def upgrade() -> None:
    op.create_table(
        "numbers",
        sa.Column("number", types.key(20), primary_key=True),
        sa.Column("shard_block", sa.Integer, nullable=False),
        sa.Column("state", types.key(16), nullable=False),
        sa.Column("created_at", types.milliseconds(), nullable=False),
        sa.UniqueConstraint("shard_block", name="numbers_by_block"),
        mysql_engine="InnoDB",
    )
    op.add_column("quarantine", sa.Column("account", types.key(20)))
    op.add_column("users", sa.Column("name", types.text(64)))
