"""Users of the v1 API: their names, roles and password hashes."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Annotated

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from tidings.storage import types
from tidings.storage.business.numbers import BusinessNumber
from tidings.storage.business.tables import metadata
from tidings.storage.database import add_rows

ADMIN = "admin"
USER = "user"


@dataclasses.dataclass(frozen=True, slots=True)
class User:
    """User of the v1 API."""

    # Login name: unique in the installation, see `login_name`.
    username: Annotated[str, types.text(64)]
    # Business number that the user acts for.
    account: Annotated[str, types.key(20)]
    # `ADMIN` or `USER`.
    role: Annotated[str, types.key(16)]
    # In argon2's text form, parameters included.
    password_hash: Annotated[str, types.key(255)]
    must_change_password: bool
    created_at: types.UnixMilliseconds
    # Generation of the valid tokens. Raising it ends all tokens issued before.
    generation: Annotated[int, sa.Integer, sa.DefaultClause("0")] = 0
    # Name within the number; None where it is the same as `username`.
    name: Annotated[str | None, types.text(64)] = None

    @property
    def shown_name(self) -> str:
        """Return the name within the number, which the API shows."""
        return self.username if self.name is None else self.name

    def __repr__(self) -> str:
        return f"User({self.username!r}, role={self.role!r})"


table = metadata.table_of(User, "users", key=("username",))


def login_name(number: BusinessNumber, name: str) -> str:
    """Return the login name of a user of a number: its name, for further numbers followed by `@` and the number."""
    return name if number.is_first else f"{name}@{number.number}"


async def find_user(connection: AsyncConnection, username: str) -> User | None:
    """Find the user whose name is exactly `username`."""
    row = (await connection.execute(sa.select(table).where(table.c.username == username))).first()
    # MySQL ignores trailing spaces when it compares text.
    return User(*row) if row is not None and row.username == username else None


async def add_user_if_missing(connection: AsyncConnection, user: User) -> None:
    """Add a user, unless one of the same name exists."""
    await add_rows(connection, table, [user])


async def list_users(connection: AsyncConnection, account: str) -> Sequence[User]:
    """List the users of an account, by name."""
    rows = await connection.execute(sa.select(table).where(table.c.account == account).order_by(table.c.username))
    return [User(*row) for row in rows]


async def add_user(connection: AsyncConnection, user: User) -> bool:
    """Add a user. Returns false and changes nothing when one of the same name exists."""
    if await find_user(connection, user.username) is not None:
        return False
    try:
        await connection.execute(table.insert(), [dataclasses.asdict(user)])
    except sa.exc.IntegrityError:
        # Another process has just added the user.
        return False
    return True


async def delete_user(connection: AsyncConnection, user: User) -> bool:
    """Delete a user. Returns false when it is already deleted, even if another user has its name now."""
    deleted = await connection.execute(
        table.delete().where(table.c.username == user.username, table.c.created_at == user.created_at)
    )
    return deleted.rowcount == 1


async def replace(connection: AsyncConnection, user: User, successor: User) -> bool:
    """Write password and generation of `successor`, unless those of `user` have changed since it was read.

    Returns whether they were written. The two must differ.
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
