"""Reviews, quality and edits of templates; changes of templates that are to be reported."""

import sqlalchemy as sa
from alembic import op

from tidings.storage import types

revision = "0037"
down_revision = "0036"
# The oldest program that works on the tables after this migration.
COMPATIBLE_FROM = "0026"


def upgrade() -> None:
    op.add_column("templates", sa.Column("review_at", types.milliseconds()))
    op.add_column("templates", sa.Column("rejected_reason", types.key(32)))
    op.add_column("templates", sa.Column("quality", types.key(16)))
    op.add_column("templates", sa.Column("quality_at", types.milliseconds()))
    op.add_column("templates", sa.Column("previous_category", types.key(32)))
    op.add_column("templates", sa.Column("edits", types.text(255), nullable=False, server_default="[]"))
    op.create_table(
        "template_events",
        sa.Column("id", types.key(64), primary_key=True),
        sa.Column("account", types.key(20), nullable=False),
        sa.Column("version", sa.BigInteger, nullable=False),
        sa.Column("position", sa.Integer, nullable=False),
        sa.Column("kind", types.key(16), nullable=False),
        sa.Column("namespace", types.key(64), nullable=False),
        sa.Column("name", types.key(512), nullable=False),
        sa.Column("language", types.key(16), nullable=False),
        sa.Column("category", types.key(32), nullable=False),
        sa.Column("old_value", types.key(32), nullable=False),
        sa.Column("new_value", types.key(32), nullable=False),
        sa.Column("reason", types.key(32)),
        sa.Column("info", types.long_text(), nullable=False),
        sa.Column("created_at", types.milliseconds(), nullable=False),
        sa.Index("template_events_by_account", "account", "version", "position"),
        mysql_engine="InnoDB",
    )
