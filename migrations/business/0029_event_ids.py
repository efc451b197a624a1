"""Own event ids of callbacks, which are the same after a restore."""

import sqlalchemy as sa
from alembic import op

from tidings.storage import types

revision = "0029"
down_revision = "0028"
COMPATIBLE_FROM = "0026"


def upgrade() -> None:
    op.add_column("callbacks", sa.Column("event", types.key(64), nullable=True))
    op.add_column("callback_replays", sa.Column("event", types.key(64), nullable=True))
