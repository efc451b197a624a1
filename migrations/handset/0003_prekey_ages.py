"""The age of recipients' pre-keys, and since when they are out of use."""

import time

import sqlalchemy as sa
from alembic import op

from tidings.storage import types

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    # Those that are there count as made now.
    now = sa.text(str(int(time.time() * 1000)))
    op.add_column("handset_prekeys", sa.Column("created_at", types.milliseconds(), nullable=False, server_default=now))
    op.add_column(
        "handset_prekeys", sa.Column("retired_at", types.milliseconds(), nullable=False, server_default=sa.text("0"))
    )
