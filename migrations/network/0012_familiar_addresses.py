"""Familiar addresses of locked numbers, with their own limits on wrong PINs, and an index of live short codes."""

import time

import sqlalchemy as sa
from alembic import op

from tidings.storage import types

revision = "0012"
down_revision = "0011"
COMPATIBLE_FROM = "0009"

# `yearly_full_at` counts 10 days per wrong PIN before this migration, and 90 days after it.
SCALE = 9
# Milliseconds. A node of the previous release, which counts up to 60 wrong PINs, accepts a PIN with a bucket that is
# full after at most this time.
LONGEST = 590 * 24 * 3600 * 1000


def upgrade() -> None:
    op.create_table(
        "registration_lock_addresses",
        sa.Column("number", types.key(15), primary_key=True),
        sa.Column("address_hash", types.fixed_bytes(32), primary_key=True),
        sa.Column("seen_at", types.milliseconds(), nullable=False),
        sa.Index("registration_lock_addresses_by_time", "seen_at"),
        mysql_engine="InnoDB",
    )
    for name in ("familiar_daily_full_at", "familiar_yearly_full_at"):
        op.add_column("registration_locks", sa.Column(name, types.milliseconds(), nullable=False, server_default="0"))
    op.create_index("registration_challenges_by_expiry", "registration_challenges", ["number", "digits", "expires_at"])
    now = int(time.time() * 1000)
    scaled = sa.text(
        "UPDATE registration_locks SET yearly_full_at = CASE"
        " WHEN (yearly_full_at - :now) * :scale > :longest THEN :now + :longest"
        " ELSE :now + (yearly_full_at - :now) * :scale END"
        " WHERE yearly_full_at > :now"
    )
    op.get_bind().execute(scaled, {"now": now, "scale": SCALE, "longest": LONGEST})
