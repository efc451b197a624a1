"""Identity keys of numbers that have unregistered."""

import sqlalchemy as sa
from alembic import op

from tidings.storage import types

revision = "0005"
down_revision = "0004"


def upgrade() -> None:
    op.create_table(
        "former_identities",
        sa.Column("number", types.key(15), primary_key=True),
        sa.Column("identity_key", types.fixed_bytes(33), nullable=False),
        mysql_engine="InnoDB",
    )
