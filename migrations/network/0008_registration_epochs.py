"""Epoch under which a number was last registered or got keys."""

import sqlalchemy as sa
from alembic import op

from tidings.storage import types

revision = "0008"
down_revision = "0007"


def upgrade() -> None:
    op.create_table(
        "registration_epochs",
        sa.Column("number", types.key(15), primary_key=True),
        sa.Column("epoch", sa.BigInteger, nullable=False),
        mysql_engine="InnoDB",
    )
