"""Cloud API: number of the changes of a number's limits that webhooks reported."""

import sqlalchemy as sa
from alembic import op

revision = "0048"
down_revision = "0047"
# The oldest program that works on the tables after this migration.
COMPATIBLE_FROM = "0026"


def upgrade() -> None:
    op.add_column("cloud_limits", sa.Column("announcements", sa.Integer, nullable=False, server_default="0"))
