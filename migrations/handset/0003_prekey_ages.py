"""Age and retirement of recipients' pre-keys."""

import time

import sqlalchemy as sa
from alembic import op

from tidings.storage import types

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    zero = sa.text("0")
    op.add_column("handset_prekeys", sa.Column("created_at", types.milliseconds(), nullable=False, server_default=zero))
    # Existing pre-keys count as made now.
    made_now = sa.text("UPDATE handset_prekeys SET created_at = :now WHERE created_at = 0")
    op.execute(made_now.bindparams(now=int(time.time() * 1000)))
    op.add_column("handset_prekeys", sa.Column("retired_at", types.milliseconds(), nullable=False, server_default=zero))
