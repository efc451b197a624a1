"""The age of the number's own pre-keys, whether the network has them, since when they are out of use; the next id."""

import time

import sqlalchemy as sa
from alembic import op

from tidings.storage import types

revision = "0013"
down_revision = "0012"


def upgrade() -> None:
    zero = sa.text("0")
    op.add_column("own_prekeys", sa.Column("created_at", types.milliseconds(), nullable=False, server_default=zero))
    # Those that are there count as made now; their public halves were uploaded when they were made.
    made_now = sa.text("UPDATE own_prekeys SET created_at = :now WHERE created_at = 0")
    op.execute(made_now.bindparams(now=int(time.time() * 1000)))
    op.add_column("own_prekeys", sa.Column("uploaded", sa.Boolean, nullable=False, server_default=sa.true()))
    op.add_column("own_prekeys", sa.Column("retired_at", types.milliseconds(), nullable=False, server_default=zero))
    # 0: the one after all that there are.
    op.add_column("accounts", sa.Column("next_key_id", sa.Integer, nullable=False, server_default=zero))
