"""The business's own numbers: their registration on the network and their private keys, sealed."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from tidings.runtime.settings import SettingsError
from tidings.storage import types, users
from tidings.storage.business_tables import metadata
from tidings.storage.database import Database, pages

# Kinds of pre-key.
SIGNED = "signed"
ONE_TIME = "one_time"
KYBER = "kyber"

accounts = sa.Table(
    "accounts",
    metadata,
    sa.Column("number", types.key(20), primary_key=True),
    sa.Column("registration_id", sa.Integer, nullable=False),
    sa.Column("identity_key", types.blob(), nullable=False),
    sa.Column("device_token", types.blob(), nullable=False),
    sa.Column("data_key", types.blob(), nullable=False),
    mysql_engine="InnoDB",
)

own_prekeys = sa.Table(
    "own_prekeys",
    metadata,
    sa.Column("account", types.key(20), primary_key=True),
    sa.Column("kind", types.key(8), primary_key=True),
    sa.Column("key_id", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("sealed", types.blob(), nullable=False),
    mysql_engine="InnoDB",
)


@dataclasses.dataclass(frozen=True, slots=True)
class Account:
    """One registered number.

    identity_key, device_token: sealed; data_key: wrapped by the installation's master key.
    """

    number: str
    registration_id: int
    identity_key: bytes
    device_token: bytes
    data_key: bytes


@dataclasses.dataclass(frozen=True, slots=True)
class OwnPreKey:
    """A private pre-key, sealed. kind: `signed`, `one_time` or `kyber`."""

    account: str
    kind: str
    key_id: int
    sealed: bytes


async def find_account(connection: AsyncConnection, number: str) -> Account | None:
    """The registration of a number."""
    row = (await connection.execute(sa.select(accounts).where(accounts.c.number == number))).first()
    return Account(*row) if row else None


async def list_numbers(connection: AsyncConnection) -> Sequence[str]:
    """The numbers that the database is for: those that its users act for, or that were registered before there was a
    user; none in a new one."""
    acted_for = await connection.execute(sa.select(users.table.c.account).distinct())
    numbers = [row.account for row in acted_for]
    if not numbers:
        numbers = [row.number for row in await connection.execute(sa.select(accounts.c.number))]
    return sorted(numbers)


async def require_number(database: Database, number: str) -> None:
    """Raises `SettingsError` for a database that is another number's: users, sessions and callbacks would be of one,
    what is sent of the other."""
    async with database.reading() as connection:
        numbers = await list_numbers(connection)
    if numbers and number not in numbers:
        raise SettingsError(
            f"TIDINGS_BUSINESS_NUMBER is {number}, but this database is that of {', '.join(numbers)}: "
            "set the number back, or start with an empty database"
        )


async def is_registered(connection: AsyncConnection, number: str) -> bool:
    """Is the number registered with the network?"""
    return (
        await connection.execute(sa.select(accounts.c.number).where(accounts.c.number == number))
    ).first() is not None


async def find_registration_id(connection: AsyncConnection, number: str) -> int | None:
    """The id that the number's device has at present; `None` when it is not registered."""
    found = await connection.execute(sa.select(accounts.c.registration_id).where(accounts.c.number == number))
    return found.scalar()


async def add_account(connection: AsyncConnection, account: Account) -> None:
    """Keep a new registration, or replace the one of the same number with its pre-keys."""
    await connection.execute(own_prekeys.delete().where(own_prekeys.c.account == account.number))
    await connection.execute(accounts.delete().where(accounts.c.number == account.number))
    await connection.execute(accounts.insert(), [dataclasses.asdict(account)])


async def add_prekeys(connection: AsyncConnection, keys: Sequence[OwnPreKey]) -> None:
    """Keep private pre-keys; done before their public halves are uploaded."""
    if keys:
        await connection.execute(own_prekeys.insert(), [dataclasses.asdict(key) for key in keys])


async def list_prekeys(connection: AsyncConnection, account: str) -> Sequence[OwnPreKey]:
    """Every private pre-key of a number."""
    rows = await connection.execute(sa.select(own_prekeys).where(own_prekeys.c.account == account))
    return [OwnPreKey(*row) for row in rows]


async def delete_prekeys(connection: AsyncConnection, account: str, kind: str, key_ids: Sequence[int]) -> None:
    """Forget used one-time pre-keys, in the transaction that keeps the sessions they opened."""
    for page in pages(key_ids):
        await connection.execute(
            own_prekeys.delete().where(
                own_prekeys.c.account == account, own_prekeys.c.kind == kind, own_prekeys.c.key_id.in_(page)
            )
        )
