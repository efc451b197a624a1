"""Numbers that belong to the WABA of another number in the Cloud API."""

import sqlalchemy as sa
from alembic import op

from tidings.storage import types

revision = "0040"
down_revision = "0039"
# The oldest program that works on the tables after this migration.
COMPATIBLE_FROM = "0026"


def upgrade() -> None:
    op.add_column("numbers", sa.Column("waba_of", types.key(20), nullable=False, server_default=""))
