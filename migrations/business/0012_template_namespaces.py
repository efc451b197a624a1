"""Namespace and parameter format of templates; a template is unique by namespace, name and language."""

import sqlalchemy as sa
from alembic import op

from tidings.storage import types

revision = "0012"
down_revision = "0011"

_COPIED = "account, namespace, name, language, category, status, components, created_at"


def upgrade() -> None:
    op.create_table(
        "new_templates",
        sa.Column("account", types.key(20), primary_key=True),
        sa.Column("namespace", types.key(64), primary_key=True),
        sa.Column("name", types.key(512), primary_key=True),
        sa.Column("language", types.key(16), primary_key=True),
        sa.Column("category", types.key(32), nullable=False),
        sa.Column("status", types.key(16), nullable=False),
        sa.Column("parameter_format", types.key(16), nullable=False),
        sa.Column("components", types.long_text(), nullable=False),
        sa.Column("created_at", types.milliseconds(), nullable=False),
        mysql_engine="InnoDB",
    )
    op.execute(
        f"INSERT INTO new_templates (parameter_format, {_COPIED}) SELECT 'POSITIONAL', {_COPIED} FROM templates"  # noqa: S608
    )
    op.drop_table("templates")
    op.rename_table("new_templates", "templates")
