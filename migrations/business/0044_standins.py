"""Numbers that stand for users whose number the real Cloud API does not show."""

import sqlalchemy as sa
from alembic import op

from tidings.storage import types

revision = "0044"
down_revision = "0043"
# The oldest program that works on the tables after this migration.
COMPATIBLE_FROM = "0026"


def upgrade() -> None:
    op.create_table(
        "standins",
        sa.Column("account", types.key(20), primary_key=True),
        sa.Column("number", types.key(20), primary_key=True),
        sa.Column("user_id", types.key(160), nullable=False),
        sa.Index("standins_by_user", "account", "user_id", unique=True),
        mysql_engine="InnoDB",
    )
