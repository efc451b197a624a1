"""Number of undecryptable messages of one sender."""

import sqlalchemy as sa
from alembic import op

revision = "0018"
down_revision = "0017"


def upgrade() -> None:
    op.add_column("undecrypted_messages", sa.Column("counted", sa.Integer, nullable=False, server_default="0"))
