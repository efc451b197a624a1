"""Post-quantum protection of identities, kept with the identity so that it outlives the sessions."""

import sqlalchemy as sa
from alembic import op

revision = "0011"
down_revision = "0010"


def upgrade() -> None:
    op.add_column("identities", sa.Column("had_kyber", sa.Boolean, nullable=False, server_default=sa.false()))
    op.execute(
        "UPDATE identities SET had_kyber = 1 WHERE EXISTS (SELECT 1 FROM sessions WHERE"
        " sessions.account = identities.account AND sessions.peer = identities.peer AND sessions.had_kyber = 1)"
    )
    op.drop_column("sessions", "had_kyber")
