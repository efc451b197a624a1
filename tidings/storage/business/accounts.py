"""The business's own numbers: their registration on the network and their private keys, sealed."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Sequence

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from tidings.runtime.env import SettingsError
from tidings.storage import types
from tidings.storage.business import users
from tidings.storage.business.tables import metadata
from tidings.storage.database import Database, pages
from tidings.storage.row_lists import any_row_of, row_list

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
    sa.Column("next_key_id", sa.Integer, nullable=False),
    mysql_engine="InnoDB",
)

own_prekeys = sa.Table(
    "own_prekeys",
    metadata,
    sa.Column("account", types.key(20), primary_key=True),
    sa.Column("kind", types.key(8), primary_key=True),
    sa.Column("key_id", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("sealed", types.blob(), nullable=False),
    sa.Column("created_at", types.milliseconds(), nullable=False),
    sa.Column("uploaded", sa.Boolean, nullable=False),
    sa.Column("retired_at", types.milliseconds(), nullable=False),
    mysql_engine="InnoDB",
)


@dataclasses.dataclass(frozen=True, slots=True)
class Account:
    """One registered number.

    identity_key, device_token: sealed; data_key: wrapped by the installation's master key; next_key_id: the first one
    that no pre-key had lately, 0 when that is not known.
    """

    number: str
    registration_id: int
    identity_key: bytes
    device_token: bytes
    data_key: bytes
    next_key_id: int = 0


@dataclasses.dataclass(frozen=True, slots=True)
class OwnPreKey:
    """A private pre-key, sealed. kind: `signed`, `one_time` or `kyber`.

    created_at: Unix milliseconds. uploaded: of lasting ones, has the network answered that it has it? retired_at: Unix
    milliseconds since when nobody new is given it, as far as we know: it was replaced, or is gone from the network. 0
    for one in use.
    """

    account: str
    kind: str
    key_id: int
    sealed: bytes
    created_at: int = 0
    uploaded: bool = True
    retired_at: int = 0


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


async def set_next_key_id(connection: AsyncConnection, number: str, next_key_id: int) -> None:
    """Keep with which id new pre-keys go on; in the transaction that keeps those before it."""
    await connection.execute(accounts.update().where(accounts.c.number == number).values(next_key_id=next_key_id))


async def list_prekeys(connection: AsyncConnection, account: str) -> Sequence[OwnPreKey]:
    """Every private pre-key of a number, in the order in which they were made."""
    rows = await connection.execute(
        sa.select(own_prekeys)
        .where(own_prekeys.c.account == account)
        .order_by(own_prekeys.c.created_at, own_prekeys.c.key_id)
    )
    return [OwnPreKey(*row) for row in rows]


async def list_one_time_ids(connection: AsyncConnection, account: str) -> Sequence[int]:
    """The ids of the one-time pre-keys of a number that nobody has used."""
    rows = await connection.execute(
        sa.select(own_prekeys.c.key_id).where(own_prekeys.c.account == account, own_prekeys.c.kind == ONE_TIME)
    )
    return [row[0] for row in rows]


async def take_one_time_prekeys(connection: AsyncConnection, account: str, key_ids: Sequence[int]) -> Sequence[int]:
    """Delete used one-time pre-keys, in the transaction that keeps the sessions they opened; those that were there."""
    found: list[int] = []
    for page in pages(list(dict.fromkeys(key_ids))):
        rows = await connection.execute(
            sa.select(own_prekeys.c.key_id)
            .where(own_prekeys.c.account == account, own_prekeys.c.kind == ONE_TIME, own_prekeys.c.key_id.in_(page))
            # Another shard may be using one of them: whoever comes second waits, and finds it gone.
            .with_for_update()
        )
        found += [row[0] for row in rows]
    await delete_prekeys(connection, account, ONE_TIME, found)
    return found


_PREKEYS_BY_ID = sa.select(own_prekeys).where(
    any_row_of("keys", own_prekeys.c.account, own_prekeys.c.kind, own_prekeys.c.key_id)
)


async def list_prekeys_by_id(
    connection: AsyncConnection, account: str, wanted: Collection[tuple[str, int]]
) -> Sequence[OwnPreKey]:
    """Those of these private pre-keys, (kind, id), that are there."""
    found: list[OwnPreKey] = []
    for page in pages(list(wanted)):
        rows = await connection.execute(_PREKEYS_BY_ID, {"keys": row_list([(account, *key) for key in page])})
        found += [OwnPreKey(*row) for row in rows]
    return found


async def delete_prekeys(connection: AsyncConnection, account: str, kind: str, key_ids: Sequence[int]) -> None:
    """Forget used one-time pre-keys, in the transaction that keeps the sessions they opened."""
    for page in pages(key_ids):
        await connection.execute(
            own_prekeys.delete().where(
                own_prekeys.c.account == account, own_prekeys.c.kind == kind, own_prekeys.c.key_id.in_(page)
            )
        )


async def list_lasting(connection: AsyncConnection, account: str) -> Sequence[OwnPreKey]:
    """The signed and Kyber pre-keys of a number in the order in which they were made, without what is sealed."""
    columns = own_prekeys.c
    rows = await connection.execute(
        sa.select(columns.kind, columns.key_id, columns.created_at, columns.uploaded, columns.retired_at)
        .where(columns.account == account, columns.kind != ONE_TIME)
        .order_by(columns.created_at, columns.key_id)
    )
    return [OwnPreKey(account, kind, key_id, b"", *state) for kind, key_id, *state in rows]


async def replace_lasting(connection: AsyncConnection, account: str, kind: str, key_id: int, now: int) -> None:
    """The network has this key of a kind now, and the others are out of use."""
    of_kind = (own_prekeys.c.account == account) & (own_prekeys.c.kind == kind)
    await connection.execute(
        own_prekeys.update().where(of_kind, own_prekeys.c.key_id == key_id).values(uploaded=True, retired_at=0)
    )
    await connection.execute(
        own_prekeys.update()
        .where(of_kind, own_prekeys.c.key_id != key_id, own_prekeys.c.retired_at == 0)
        .values(retired_at=now)
    )


async def retire_one_time(connection: AsyncConnection, account: str, left: Sequence[int], now: int) -> None:
    """The network has these one-time pre-keys left, at most 1,000; the others were handed out, or never came there."""
    of_kind = (own_prekeys.c.account == account) & (own_prekeys.c.kind == ONE_TIME)
    await connection.execute(
        own_prekeys.update()
        .where(of_kind, own_prekeys.c.key_id.not_in(left), own_prekeys.c.retired_at == 0)
        .values(retired_at=now)
    )
    await connection.execute(own_prekeys.update().where(of_kind, own_prekeys.c.key_id.in_(left)).values(retired_at=0))


async def delete_retired(connection: AsyncConnection, account: str, before: int) -> Sequence[tuple[str, int]]:
    """Forget what is out of use since before then; kind and id of each."""
    old = (own_prekeys.c.account == account) & (own_prekeys.c.retired_at > 0) & (own_prekeys.c.retired_at < before)
    rows = await connection.execute(sa.select(own_prekeys.c.kind, own_prekeys.c.key_id).where(old))
    found = [(kind, key_id) for kind, key_id in rows]
    await connection.execute(own_prekeys.delete().where(old))
    return found
