"""Own pre-keys: age, presence on the network and retirement; next pre-key id of a number."""

import time

import sqlalchemy as sa
from alembic import op

from tidings.storage import types

revision = "0013"
down_revision = "0012"


def upgrade() -> None:
    zero = sa.text("0")
    op.add_column("own_prekeys", sa.Column("created_at", types.milliseconds(), nullable=False, server_default=zero))
    # Existing pre-keys count as made now. Their public halves were uploaded when they were made.
    made_now = sa.text("UPDATE own_prekeys SET created_at = :now WHERE created_at = 0")
    op.execute(made_now.bindparams(now=int(time.time() * 1000)))
    op.add_column("own_prekeys", sa.Column("uploaded", sa.Boolean, nullable=False, server_default=sa.true()))
    op.add_column("own_prekeys", sa.Column("retired_at", types.milliseconds(), nullable=False, server_default=zero))
    # 0: the id after the highest existing one.
    op.add_column("accounts", sa.Column("next_key_id", sa.Integer, nullable=False, server_default=zero))
