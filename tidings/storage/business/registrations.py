"""Registration of a number, except for its keys: two-step PIN and number of shards. Also holds a registration that was
started and whose outcome is unknown."""

from __future__ import annotations

import dataclasses

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from tidings.storage import types
from tidings.storage.business.tables import metadata
from tidings.storage.database import insert_or_ignore

table = metadata.table(
    "registrations",
    sa.Column("account", types.key(20), primary_key=True),
    sa.Column("shards", sa.Integer, nullable=False),
    sa.Column("pin_hash", types.key(255), nullable=False),
    sa.Column("registered_at", types.milliseconds(), nullable=False),
)


pending = metadata.table(
    "pending_registrations",
    sa.Column("account", types.key(20), primary_key=True),
    sa.Column("by_code", sa.Boolean, nullable=False),
    sa.Column("data_key", types.blob(), nullable=False),
    sa.Column("sealed", types.blob(), nullable=False),
)


@dataclasses.dataclass(frozen=True, slots=True)
class PendingRegistration:
    """Registration sent to the network. Its keys are stored here before they are sent."""

    account: str
    # True if a registration code proves it; the code is not stored.
    by_code: bool
    # Wrapped by the installation's master key.
    data_key: bytes
    # All keys and the device token.
    sealed: bytes


@dataclasses.dataclass(frozen=True, slots=True)
class RegistrationRow:
    """Registration of one number."""

    account: str
    # As set by `POST /v1/account/shards`.
    shards: int = 1
    # Hash of the two-step PIN in argon2's text form; empty when no PIN is set.
    pin_hash: str = dataclasses.field(default="", repr=False)
    # Unix milliseconds of the registration with the network; 0 when unknown.
    registered_at: int = 0


async def find_registration(connection: AsyncConnection, account: str) -> RegistrationRow:
    """Find the registration of a number; the defaults if nothing is stored."""
    row = (await connection.execute(sa.select(table).where(table.c.account == account))).first()
    return RegistrationRow(*row) if row is not None else RegistrationRow(account)


async def set_shards(connection: AsyncConnection, account: str, shards: int) -> None:
    """Store the number of shards."""
    await _change(connection, account, shards=shards)


async def set_pin_hash(connection: AsyncConnection, account: str, pin_hash: str) -> None:
    """Store the hash of the PIN; an empty hash removes the PIN."""
    await _change(connection, account, pin_hash=pin_hash)


async def note_registered(connection: AsyncConnection, account: str, registered_at: int) -> None:
    """Store the time at which the number was registered, Unix milliseconds."""
    await _change(connection, account, registered_at=registered_at)


async def begin(connection: AsyncConnection, registration: PendingRegistration) -> None:
    """Store a registration before it is sent to the network. An earlier pending one is dropped."""
    await connection.execute(pending.delete().where(pending.c.account == registration.account))
    await connection.execute(pending.insert(), [dataclasses.asdict(registration)])


async def find_pending(connection: AsyncConnection, account: str) -> PendingRegistration | None:
    """Find the registration of a number whose outcome is unknown."""
    row = (await connection.execute(sa.select(pending).where(pending.c.account == account))).first()
    return PendingRegistration(*row) if row is not None else None


async def end_pending(connection: AsyncConnection, account: str) -> None:
    """Delete the pending registration, once its outcome is known."""
    await connection.execute(pending.delete().where(pending.c.account == account))


async def _change(connection: AsyncConnection, account: str, **values: object) -> None:
    await connection.execute(insert_or_ignore(connection, table), [dataclasses.asdict(RegistrationRow(account))])
    await connection.execute(table.update().where(table.c.account == account).values(**values))
