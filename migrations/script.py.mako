"""${message}."""

from alembic import op
import sqlalchemy as sa

revision = ${repr(up_revision)}
down_revision = ${repr(down_revision)}
# The oldest program that works on the tables after this migration.
COMPATIBLE_FROM = ${repr(down_revision)}


def upgrade() -> None:
    ${upgrades if upgrades else "pass"}
