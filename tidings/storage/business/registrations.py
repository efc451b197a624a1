"""Registration of a number, except for its keys: two-step PIN and number of shards. Also holds a registration that was
started and whose outcome is unknown."""

from __future__ import annotations

import dataclasses
from typing import Annotated

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from tidings.storage import types
from tidings.storage.business.tables import metadata
from tidings.storage.database import add_rows


@dataclasses.dataclass(frozen=True, slots=True)
class PendingRegistration:
    """Registration sent to the network. Its keys are stored here before they are sent."""

    account: Annotated[str, types.key(20)]
    # True if a registration code proves it; the code is not stored.
    by_code: bool
    # Wrapped by the installation's master key.
    data_key: bytes
    # All keys and the device token.
    sealed: bytes


pending = metadata.table_of(PendingRegistration, "pending_registrations", key=("account",))


@dataclasses.dataclass(frozen=True, slots=True)
class RegistrationRow:
    """Registration of one number."""

    account: Annotated[str, types.key(20)]
    # As set by `POST /v1/account/shards`.
    shards: int = 1
    # Hash of the two-step PIN in argon2's text form; empty when no PIN is set.
    pin_hash: Annotated[str, types.key(255)] = dataclasses.field(default="", repr=False)
    # Unix milliseconds of the registration with the network; 0 when unknown.
    registered_at: types.UnixMilliseconds = 0


table = metadata.table_of(RegistrationRow, "registrations", key=("account",))


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
    await add_rows(connection, table, [RegistrationRow(account)])
    await connection.execute(table.update().where(table.c.account == account).values(**values))
