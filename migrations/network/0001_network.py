"""Tables of the message network: devices, codes, blocks, pre-keys, mailbox."""

import sqlalchemy as sa
from alembic import op

from tidings.storage import types

revision = "0001"
down_revision = None


def upgrade() -> None:
    op.create_table(
        "registrations",
        sa.Column("number", types.key(15), primary_key=True),
        sa.Column("registration_id", sa.BigInteger, nullable=False),
        sa.Column("identity_key", types.fixed_bytes(33), nullable=False),
        sa.Column("signed_prekey_id", sa.BigInteger, nullable=False),
        sa.Column("signed_prekey", types.fixed_bytes(33), nullable=False),
        sa.Column("signed_prekey_signature", types.fixed_bytes(64), nullable=False),
        sa.Column("kyber_prekey_id", sa.BigInteger),
        sa.Column("kyber_prekey", types.fixed_bytes(1569)),
        sa.Column("kyber_prekey_signature", types.fixed_bytes(64)),
        sa.Column("token_hash", types.fixed_bytes(32), nullable=False),
        sa.Column("registered_at", types.milliseconds(), nullable=False),
        mysql_engine="InnoDB",
    )
    op.create_table(
        "registration_codes",
        sa.Column("number", types.key(15), primary_key=True),
        sa.Column("code_hash", types.fixed_bytes(32), nullable=False),
        sa.Column("issued_at", types.milliseconds(), nullable=False),
        sa.Column("expires_at", types.milliseconds(), nullable=False),
        sa.Column("attempts_left", sa.Integer, nullable=False),
        sa.Column("window_started_at", types.milliseconds(), nullable=False),
        sa.Column("issued_in_window", sa.Integer, nullable=False),
        mysql_engine="InnoDB",
    )
    op.create_table(
        "blocks",
        sa.Column("number", types.key(15), primary_key=True),
        sa.Column("other", types.key(15), primary_key=True),
        mysql_engine="InnoDB",
    )
    op.create_table(
        "prekeys",
        sa.Column("number", types.key(15), primary_key=True),
        sa.Column("key_id", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("public", types.fixed_bytes(33), nullable=False),
        mysql_engine="InnoDB",
    )
    op.create_table(
        "kyber_prekeys",
        sa.Column("number", types.key(15), primary_key=True),
        sa.Column("key_id", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("public", types.fixed_bytes(1569), nullable=False),
        sa.Column("signature", types.fixed_bytes(64), nullable=False),
        mysql_engine="InnoDB",
    )
    op.create_table(
        "bundle_fetches",
        sa.Column("target", types.key(15), primary_key=True),
        sa.Column("fetcher", types.key(15), primary_key=True),
        mysql_engine="InnoDB",
    )
    op.create_table(
        "envelopes",
        sa.Column("seq", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("recipient", types.key(15), nullable=False),
        sa.Column("sender", types.key(15), nullable=False),
        sa.Column("id", types.key(64), nullable=False),
        sa.Column("kind", types.key(16), nullable=False),
        sa.Column("timestamp", types.milliseconds(), nullable=False),
        sa.Column("expires_at", types.milliseconds(), nullable=False),
        sa.Column("body", types.blob(), nullable=False),
        sa.Column("refs", types.long_text(), nullable=False),
        sa.Index("envelopes_by_recipient", "recipient", "seq"),
        sa.Index("envelopes_by_expiry", "expires_at", "seq"),
        sa.Index("envelopes_by_id", "sender", "id", unique=True),
        mysql_engine="InnoDB",
    )
