"""Media and what is still to be downloaded."""

revision = "0006"
down_revision = "0005"


def upgrade() -> None:
    pass
