"""One-time pre-keys that devices have uploaded, so that a repeated upload does not add one again."""

import sqlalchemy as sa
from alembic import op

from tidings.storage import types

revision = "0014"
down_revision = "0013"
COMPATIBLE_FROM = "0009"


def upgrade() -> None:
    op.create_table(
        "prekey_uploads",
        sa.Column("number", types.key(15), primary_key=True),
        sa.Column("digests", types.blob(), nullable=False),
        mysql_engine="InnoDB",
    )
