"""Index for the total size of a number's files."""

from alembic import op

revision = "0006"
down_revision = "0005"


def upgrade() -> None:
    op.create_index("blobs_by_owner", "blobs", ["owner", "size"])
