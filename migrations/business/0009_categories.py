"""Category of the template of a message; legal information about the business."""

import sqlalchemy as sa
from alembic import op

from tidings.storage import types

revision = "0009"
down_revision = "0008"


def upgrade() -> None:
    op.add_column("messages", sa.Column("category", types.key(16), nullable=False, server_default=""))
    op.add_column("profiles", sa.Column("compliance", types.long_text(), nullable=True))
