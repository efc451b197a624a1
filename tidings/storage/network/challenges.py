"""Registration codes by number and requesting address, and the wrong tries of each number."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection
from typing import Annotated

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from tidings.storage import types
from tidings.storage.database import insert_or_ignore, save_rows
from tidings.storage.network.tables import metadata

# One code per number and address. A code requested from another address neither replaces it nor uses it up.

# Wrong tries of short codes per number, as Unix milliseconds at which the number's token bucket is full.
tries = metadata.table(
    "registration_tries",
    sa.Column("number", types.key(15), primary_key=True),
    sa.Column("full_at", types.milliseconds(), nullable=False),
    sa.Index("registration_tries_by_time", "full_at"),
)


@dataclasses.dataclass(frozen=True, slots=True)
class Challenge:
    """Registration code, and number of codes that this address requested for this number recently."""

    number: Annotated[str, types.key(15)]
    # Address that requested the code; an IPv6 address is reduced to its /64 prefix.
    origin: Annotated[str, types.key(64)]
    # Keyed hash of the code.
    code_hash: Annotated[bytes, types.fixed_bytes(32)]
    # Length of the code.
    digits: int
    issued_at: types.UnixMilliseconds
    expires_at: types.UnixMilliseconds
    # Wrong tries until the code is void; 0 once it was used.
    attempts_left: int
    # Start of the window that `issued_in_window` counts, Unix milliseconds.
    window_started_at: types.UnixMilliseconds
    # Number of codes issued in the window.
    issued_in_window: int


challenges = metadata.table_of(
    Challenge,
    "registration_challenges",
    sa.Index("registration_challenges_by_time", "issued_at"),
    sa.Index("registration_challenges_by_expiry", "number", "digits", "expires_at"),
    key=("number", "origin"),
)


async def find(connection: AsyncConnection, number: str, origin: str) -> Challenge | None:
    """Return the latest code of a number and address, usable or not, locked until the transaction ends."""
    row = (await connection.execute(sa.select(challenges).where(*_is(number, origin)).with_for_update())).first()
    return Challenge(*row) if row else None


async def count_untried(
    connection: AsyncConnection, number: str, *, digits: int, attempts: int, now: int, besides: Collection[str]
) -> int:
    """Return how many valid codes of a number and length have all their attempts left.

    attempts: of a new code.
    now: Unix milliseconds.
    besides: origins whose codes are not counted.
    """
    query = sa.select(sa.func.count()).where(
        challenges.c.number == number,
        challenges.c.digits == digits,
        challenges.c.expires_at > now,
        challenges.c.attempts_left == attempts,
        challenges.c.origin.not_in(besides),
    )
    return int((await connection.execute(query)).scalar_one())


async def put(connection: AsyncConnection, challenge: Challenge) -> None:
    """Store a code. The earlier one of the same number and address becomes void."""
    await save_rows(connection, challenges, [challenge])


async def use_attempt(connection: AsyncConnection, number: str, origin: str) -> None:
    """Count one wrong try of a code."""
    await connection.execute(
        challenges.update().where(*_is(number, origin)).values(attempts_left=challenges.c.attempts_left - 1)
    )


async def take(connection: AsyncConnection, number: str, origin: str, code_hash: bytes) -> bool:
    """Use up a code that is still usable. Returns false when another registration used it first."""
    unused = (challenges.c.code_hash == code_hash) & (challenges.c.attempts_left > 0)
    taken = await connection.execute(challenges.update().where(*_is(number, origin), unused).values(attempts_left=0))
    return taken.rowcount > 0


async def read_tries(connection: AsyncConnection, number: str) -> int:
    """Return when the bucket of wrong tries is full (Unix milliseconds), locked until the transaction ends."""
    await connection.execute(insert_or_ignore(connection, tries), [{"number": number, "full_at": 0}])
    query = sa.select(tries.c.full_at).where(tries.c.number == number).with_for_update()
    return int((await connection.execute(query)).scalar_one())


async def write_tries(connection: AsyncConnection, number: str, full_at: int) -> None:
    """Store when the number's bucket of wrong tries is full (Unix milliseconds)."""
    await connection.execute(tries.update().where(tries.c.number == number).values(full_at=full_at))


async def delete_old(connection: AsyncConnection, *, issued_before: int, full_before: int) -> int:
    """Delete codes and full buckets that limit nothing. Times are Unix milliseconds. Returns the number of codes."""
    await connection.execute(tries.delete().where(tries.c.full_at < full_before))
    return (await connection.execute(challenges.delete().where(challenges.c.issued_at < issued_before))).rowcount


def _is(number: str, origin: str) -> tuple[sa.ColumnElement[bool], sa.ColumnElement[bool]]:
    return challenges.c.number == number, challenges.c.origin == origin
