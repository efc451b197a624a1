"""Registration of a number besides its keys: the two-step PIN, the number of shards; and one that was
begun and whose outcome is not known yet."""

from __future__ import annotations

import dataclasses

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from tidings.storage import types
from tidings.storage.business.tables import metadata
from tidings.storage.database import insert_or_ignore

table = sa.Table(
    "registrations",
    metadata,
    sa.Column("account", types.key(20), primary_key=True),
    sa.Column("shards", sa.Integer, nullable=False),
    sa.Column("pin_hash", types.key(255), nullable=False),
    sa.Column("registered_at", types.milliseconds(), nullable=False),
    mysql_engine="InnoDB",
)


pending = sa.Table(
    "pending_registrations",
    metadata,
    sa.Column("account", types.key(20), primary_key=True),
    sa.Column("by_code", sa.Boolean, nullable=False),
    sa.Column("data_key", types.blob(), nullable=False),
    sa.Column("sealed", types.blob(), nullable=False),
    mysql_engine="InnoDB",
)


@dataclasses.dataclass(frozen=True, slots=True)
class Pending:
    """A registration on its way to the network: its keys are here before they are there.

    by_code: a code proves it, which is not kept. data_key: wrapped by the installation's master key. sealed: all keys
    and the token.
    """

    account: str
    by_code: bool
    data_key: bytes
    sealed: bytes


@dataclasses.dataclass(frozen=True, slots=True)
class Registration:
    """One number's.

    shards:        as set by `POST /v1/account/shards`.
    pin_hash:      of the two-step PIN, in argon2's own text form; empty while there is none.
    registered_at: Unix milliseconds of the registration with the network; 0 when it is not known.
    """

    account: str
    shards: int = 1
    pin_hash: str = dataclasses.field(default="", repr=False)
    registered_at: int = 0


async def find_registration(connection: AsyncConnection, account: str) -> Registration:
    """What is kept for a number; the defaults where nothing was set."""
    row = (await connection.execute(sa.select(table).where(table.c.account == account))).first()
    return Registration(*row) if row is not None else Registration(account)


async def set_shards(connection: AsyncConnection, account: str, shards: int) -> None:
    """Keep the number of shards."""
    await _change(connection, account, shards=shards)


async def set_pin_hash(connection: AsyncConnection, account: str, pin_hash: str) -> None:
    """Keep the hash of a PIN; an empty one takes the PIN away."""
    await _change(connection, account, pin_hash=pin_hash)


async def note_registered(connection: AsyncConnection, account: str, registered_at: int) -> None:
    """Keep when (Unix milliseconds) the number was registered."""
    await _change(connection, account, registered_at=registered_at)


async def begin(connection: AsyncConnection, registration: Pending) -> None:
    """Keep a registration before the network hears of it; one that was begun earlier is given up."""
    await connection.execute(pending.delete().where(pending.c.account == registration.account))
    await connection.execute(pending.insert(), [dataclasses.asdict(registration)])


async def find_pending(connection: AsyncConnection, account: str) -> Pending | None:
    """The registration of a number whose outcome is not known."""
    row = (await connection.execute(sa.select(pending).where(pending.c.account == account))).first()
    return Pending(*row) if row is not None else None


async def end_pending(connection: AsyncConnection, account: str) -> None:
    """The outcome is known."""
    await connection.execute(pending.delete().where(pending.c.account == account))


async def _change(connection: AsyncConnection, account: str, **values: object) -> None:
    await connection.execute(insert_or_ignore(connection, table), [dataclasses.asdict(Registration(account))])
    await connection.execute(table.update().where(table.c.account == account).values(**values))
