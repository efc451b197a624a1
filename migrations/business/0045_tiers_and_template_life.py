"""Cloud API: messaging limits that rise, pauses of templates that end, and announced changes of categories."""

import sqlalchemy as sa
from alembic import op

from tidings.storage import types

revision = "0045"
down_revision = "0044"
# The oldest program that works on the tables after this migration.
COMPATIBLE_FROM = "0026"


def upgrade() -> None:
    op.add_column("cloud_limits", sa.Column("tier_rises_at", types.milliseconds(), nullable=False, server_default="0"))
    op.add_column("templates", sa.Column("pauses", sa.Integer, nullable=False, server_default="0"))
    op.add_column("templates", sa.Column("next_category", types.key(32)))
    op.add_column("templates", sa.Column("category_at", types.milliseconds()))
