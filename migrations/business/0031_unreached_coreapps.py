"""Reports of Webapps on unreached Coreapps, and a mark of the Coreapps that evaluate them."""

import sqlalchemy as sa
from alembic import op

from tidings.storage import types

revision = "0031"
down_revision = "0030"
# The oldest program that works on the tables after this migration.
COMPATIBLE_FROM = "0026"


def upgrade() -> None:
    op.create_table(
        "webapp_unreached",
        sa.Column("incarnation", types.key(32), primary_key=True),
        sa.Column("address", types.key(255), primary_key=True),
        sa.Column("since", types.milliseconds(), nullable=False),
        mysql_engine="InnoDB",
    )
    op.add_column("coreapp_nodes", sa.Column("heeding", types.key(32)))
