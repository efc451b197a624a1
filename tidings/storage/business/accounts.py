"""The business's own numbers: their registration on the network and their sealed private keys."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Sequence
from typing import Annotated, Any

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from tidings.config.env import SettingsError
from tidings.storage import types
from tidings.storage.business import numbers, users
from tidings.storage.business.tables import metadata
from tidings.storage.database import Database, add_rows, any_of, execute_paged, pages, select_paged
from tidings.storage.row_lists import any_row_of, row_list

# Kinds of pre-key.
SIGNED = "signed"
ONE_TIME = "one_time"
KYBER = "kyber"  # the last resort: used again and again
KYBER_ONE_TIME = "kyber_ot"
_LASTING = (SIGNED, KYBER)


@dataclasses.dataclass(frozen=True, slots=True)
class Account:
    """Registered number."""

    number: Annotated[str, types.key(20)]
    registration_id: int
    # Sealed.
    identity_key: bytes
    # Sealed.
    device_token: bytes
    # Wrapped by the installation's master key.
    data_key: bytes
    # First id that no recent pre-key has; 0 when unknown.
    next_key_id: int = 0


accounts = metadata.table_of(Account, "accounts", key=("number",))


@dataclasses.dataclass(frozen=True, slots=True)
class OwnPreKey:
    """Private pre-key, sealed."""

    account: Annotated[str, types.key(20)]
    # `SIGNED`, `ONE_TIME`, `KYBER` or `KYBER_ONE_TIME`.
    kind: Annotated[str, types.key(8)]
    key_id: int
    sealed: bytes
    created_at: types.UnixMilliseconds = 0
    # For all kinds but `ONE_TIME`: True once the network has confirmed that it has the key.
    uploaded: bool = True
    # Unix milliseconds since when, as far as is known, the network does not hand out the key: it was replaced, or is
    # gone from the network. 0 for a key in use.
    retired_at: types.UnixMilliseconds = 0


own_prekeys = metadata.table_of(OwnPreKey, "own_prekeys", key=("account", "kind", "key_id"))


async def find_account(connection: AsyncConnection, number: str) -> Account | None:
    """Find the registration of a number."""
    row = (await connection.execute(sa.select(accounts).where(accounts.c.number == number))).first()
    return Account(*row) if row else None


async def list_numbers(connection: AsyncConnection) -> Sequence[str]:
    """List the numbers that `TIDINGS_BUSINESS_NUMBER` may name: the first one, or without a table row those that users
    act for, else the registered ones.

    The registered numbers matter for databases that were registered before they had users. A new database has none.
    """
    first = await numbers.find_first(connection)
    if first is not None:
        return [first.number]
    acted_for = await connection.execute(sa.select(users.table.c.account).distinct())
    found = [row.account for row in acted_for]
    if not found:
        found = [row.number for row in await connection.execute(sa.select(accounts.c.number))]
    return sorted(found)


async def require_number(database: Database, number: str) -> None:
    """Raise `SettingsError` if the database belongs to another number.

    Otherwise its users, sessions and callbacks would be those of one number, and sent messages those of another.
    """
    async with database.reading() as connection:
        found = await list_numbers(connection)
        further = await numbers.find(connection, number)
    if found and number not in found and further is not None:
        raise SettingsError(
            f"TIDINGS_BUSINESS_NUMBER is {number}, which is a further number of this installation: it names the first "
            f"one, {', '.join(found)}"
        )
    if found and number not in found:
        raise SettingsError(
            f"TIDINGS_BUSINESS_NUMBER is {number}, but this database is that of {', '.join(found)}: "
            "set the number back, or start with an empty database"
        )


async def is_registered(connection: AsyncConnection, number: str) -> bool:
    """Return whether the number is registered with the network."""
    return (
        await connection.execute(sa.select(accounts.c.number).where(accounts.c.number == number))
    ).first() is not None


async def is_any_registered(connection: AsyncConnection, numbers: Sequence[str]) -> bool:
    """Return whether one of the numbers is registered with the network."""
    query = sa.select(accounts.c.number).where(accounts.c.number.in_(numbers)).limit(1)
    return (await connection.execute(query)).first() is not None


async def find_registration_id(connection: AsyncConnection, number: str) -> int | None:
    """Return the present registration id of the number's device; None when it is not registered."""
    found = await connection.execute(sa.select(accounts.c.registration_id).where(accounts.c.number == number))
    return found.scalar()


async def add_account(connection: AsyncConnection, account: Account) -> None:
    """Add a new registration, or replace the one of the same number together with its pre-keys."""
    await connection.execute(own_prekeys.delete().where(own_prekeys.c.account == account.number))
    await connection.execute(accounts.delete().where(accounts.c.number == account.number))
    await connection.execute(accounts.insert(), [dataclasses.asdict(account)])


async def add_prekeys(connection: AsyncConnection, keys: Sequence[OwnPreKey]) -> None:
    """Add private pre-keys. Existing ones stay: the commit may be repeated.

    Must be committed before their public halves are uploaded.
    """
    await add_rows(connection, own_prekeys, keys)


async def set_next_key_id(connection: AsyncConnection, number: str, next_key_id: int) -> None:
    """Store the id of the next new pre-key, in the transaction that adds the pre-keys before it."""
    await connection.execute(accounts.update().where(accounts.c.number == number).values(next_key_id=next_key_id))


async def list_prekeys(connection: AsyncConnection, account: str) -> Sequence[OwnPreKey]:
    """List all private pre-keys of a number in the order in which they were made."""
    rows = await connection.execute(
        sa.select(own_prekeys)
        .where(own_prekeys.c.account == account)
        .order_by(own_prekeys.c.created_at, own_prekeys.c.key_id)
    )
    return [OwnPreKey(*row) for row in rows]


async def list_one_time_ids(
    connection: AsyncConnection, account: str, kind: str = ONE_TIME, *, at_network: bool = False
) -> Sequence[int]:
    """List the ids of the unused one-time pre-keys of a kind.

    at_network: only those that the network has confirmed and may still hand out.
    """
    query = sa.select(own_prekeys.c.key_id).where(own_prekeys.c.account == account, own_prekeys.c.kind == kind)
    if at_network:
        query = query.where(own_prekeys.c.uploaded, own_prekeys.c.retired_at == 0)
    rows = await connection.execute(query)
    return [row[0] for row in rows]


async def list_signed_ids(connection: AsyncConnection, account: str) -> Sequence[int]:
    """List the ids of the stored signed pre-keys of a number."""
    rows = await connection.execute(signed_ids(account))
    return [int(row.key_id) for row in rows]


def signed_ids(account: str) -> sa.Select[Any]:
    """Return the query for the ids of the stored signed pre-keys of a number."""
    return sa.select(own_prekeys.c.key_id).where(own_prekeys.c.account == account, own_prekeys.c.kind == SIGNED)


async def take_one_time_prekeys(
    connection: AsyncConnection, account: str, key_ids: Sequence[int], kind: str = ONE_TIME
) -> Sequence[int]:
    """Delete used one-time pre-keys of a kind, in the transaction that stores the sessions they opened.

    Returns the ids of those that existed.
    """
    query = (
        sa.select(own_prekeys.c.key_id)
        .where(own_prekeys.c.account == account, own_prekeys.c.kind == kind, own_prekeys.c.key_id.in_(any_of("ids")))
        # If another shard uses one of them at the same time, the second one waits and finds it deleted.
        .with_for_update()
    )
    found = [row.key_id for row in await select_paged(connection, query, "ids", dict.fromkeys(key_ids))]
    await delete_prekeys(connection, account, kind, found)
    return found


_PREKEYS_BY_ID = sa.select(own_prekeys).where(
    any_row_of("keys", own_prekeys.c.account, own_prekeys.c.kind, own_prekeys.c.key_id)
)


async def list_prekeys_by_id(
    connection: AsyncConnection, account: str, wanted: Collection[tuple[str, int]]
) -> Sequence[OwnPreKey]:
    """List those of the given private pre-keys, (kind, id), that exist."""
    keys = [(account, *key) for key in wanted]
    return [OwnPreKey(*row) for row in await select_paged(connection, _PREKEYS_BY_ID, "keys", keys, as_list=row_list)]


async def delete_prekeys(connection: AsyncConnection, account: str, kind: str, key_ids: Sequence[int]) -> None:
    """Delete pre-keys of one kind; used one-time pre-keys in the transaction that saves the sessions they opened."""
    of_kind = (own_prekeys.c.account == account, own_prekeys.c.kind == kind)
    delete = own_prekeys.delete().where(*of_kind, own_prekeys.c.key_id.in_(any_of("ids")))
    await execute_paged(connection, delete, "ids", key_ids)


async def list_lasting(connection: AsyncConnection, account: str) -> Sequence[OwnPreKey]:
    """List the signed and Kyber pre-keys of a number in the order in which they were made, without sealed content."""
    columns = own_prekeys.c
    rows = await connection.execute(
        sa.select(columns.kind, columns.key_id, columns.created_at, columns.uploaded, columns.retired_at)
        .where(columns.account == account, columns.kind.in_(_LASTING))
        .order_by(columns.created_at, columns.key_id)
    )
    return [OwnPreKey(account, kind, key_id, b"", *state) for kind, key_id, *state in rows]


async def replace_lasting(connection: AsyncConnection, account: str, kind: str, key_id: int, now: int) -> None:
    """Record that the network has this key of a kind, and retire the other keys of the kind."""
    of_kind = (own_prekeys.c.account == account) & (own_prekeys.c.kind == kind)
    await connection.execute(
        own_prekeys.update().where(of_kind, own_prekeys.c.key_id == key_id).values(uploaded=True, retired_at=0)
    )
    await connection.execute(
        own_prekeys.update()
        .where(of_kind, own_prekeys.c.key_id != key_id, own_prekeys.c.retired_at == 0)
        .values(retired_at=now)
    )


async def confirm_one_time(connection: AsyncConnection, account: str, kind: str, key_ids: Sequence[int]) -> None:
    """Record that the network has these one-time pre-keys of a kind."""
    for page in pages(key_ids):
        await connection.execute(
            own_prekeys.update()
            .where(own_prekeys.c.account == account, own_prekeys.c.kind == kind, own_prekeys.c.key_id.in_(page))
            .values(uploaded=True)
        )


async def retire_one_time(
    connection: AsyncConnection, account: str, left: Sequence[int], now: int, *, kind: str = ONE_TIME
) -> None:
    """Retire one-time pre-keys of a kind that the network does not have: they were handed out, or never arrived.

    left: ids of those that the network has, at most 1,000.
    now: Unix milliseconds.
    """
    of_kind = (own_prekeys.c.account == account) & (own_prekeys.c.kind == kind)
    await connection.execute(
        own_prekeys.update()
        .where(of_kind, own_prekeys.c.key_id.not_in(left), own_prekeys.c.retired_at == 0)
        .values(retired_at=now)
    )
    await connection.execute(
        own_prekeys.update().where(of_kind, own_prekeys.c.key_id.in_(left)).values(uploaded=True, retired_at=0)
    )


async def delete_retired(connection: AsyncConnection, account: str, before: int) -> Sequence[tuple[str, int]]:
    """Delete pre-keys retired before `before` (Unix milliseconds). Returns the kind and id of each."""
    old = (own_prekeys.c.account == account) & (own_prekeys.c.retired_at > 0) & (own_prekeys.c.retired_at < before)
    rows = await connection.execute(sa.select(own_prekeys.c.kind, own_prekeys.c.key_id).where(old))
    found = [(kind, key_id) for kind, key_id in rows]
    await connection.execute(own_prekeys.delete().where(old))
    return found
