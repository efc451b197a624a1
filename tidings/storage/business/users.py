"""The users of the v1 API: their names, roles and password hashes."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from tidings.storage import types
from tidings.storage.business.tables import metadata
from tidings.storage.database import insert_or_ignore

ADMIN = "admin"
USER = "user"

table = sa.Table(
    "users",
    metadata,
    sa.Column("username", types.text(64), primary_key=True),
    sa.Column("account", types.key(20), nullable=False),
    sa.Column("role", types.key(16), nullable=False),
    sa.Column("password_hash", types.key(255), nullable=False),
    sa.Column("must_change_password", sa.Boolean, nullable=False),
    sa.Column("created_at", types.milliseconds(), nullable=False),
    sa.Column("generation", sa.Integer, nullable=False, server_default="0"),
    mysql_engine="InnoDB",
)


@dataclasses.dataclass(frozen=True, slots=True)
class User:
    """One user.

    account:       the business number that the user acts for.
    role:          `admin` or `user`.
    password_hash: in argon2's own text form, parameters included.
    created_at:    Unix milliseconds.
    generation:    of the tokens that are good: counted up, it ends those that are out.
    """

    username: str
    account: str
    role: str
    password_hash: str
    must_change_password: bool
    created_at: int
    generation: int = 0

    def __repr__(self) -> str:
        return f"User({self.username!r}, role={self.role!r})"


async def find_user(connection: AsyncConnection, username: str) -> User | None:
    """The user of exactly this name."""
    row = (await connection.execute(sa.select(table).where(table.c.username == username))).first()
    # MySQL compares text without its trailing spaces.
    return User(*row) if row is not None and row.username == username else None


async def add_user_if_missing(connection: AsyncConnection, user: User) -> None:
    """Keep a new user; one of the same name that is there already stays as it is."""
    await connection.execute(insert_or_ignore(connection, table), [dataclasses.asdict(user)])


async def list_users(connection: AsyncConnection, account: str) -> Sequence[User]:
    """Every user of an account, by name."""
    rows = await connection.execute(sa.select(table).where(table.c.account == account).order_by(table.c.username))
    return [User(*row) for row in rows]


async def add_user(connection: AsyncConnection, user: User) -> bool:
    """Keep a new user; false, and nothing is changed, when there is one of that name."""
    if await find_user(connection, user.username) is not None:
        return False
    try:
        await connection.execute(table.insert(), [dataclasses.asdict(user)])
    except sa.exc.IntegrityError:
        # Added by somebody else just now.
        return False
    return True


async def delete_user(connection: AsyncConnection, user: User) -> bool:
    """Forget a user; false when it is gone already, or another one has its name by now."""
    deleted = await connection.execute(
        table.delete().where(table.c.username == user.username, table.c.created_at == user.created_at)
    )
    return deleted.rowcount == 1


async def replace(connection: AsyncConnection, user: User, successor: User) -> bool:
    """Write password and generation of `successor` unless those of `user` were changed since it was read.

    True when they were written; the two must not be equal.
    """
    changed = await connection.execute(
        table.update()
        .where(
            table.c.username == user.username,
            table.c.created_at == user.created_at,
            table.c.password_hash == user.password_hash,
            table.c.generation == user.generation,
        )
        .values(
            password_hash=successor.password_hash,
            must_change_password=successor.must_change_password,
            generation=successor.generation,
        )
    )
    return changed.rowcount == 1
