"""Numbers of the installation: the first one, which `TIDINGS_BUSINESS_NUMBER` names, and further ones."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Mapping, Sequence
from typing import Annotated

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from tidings.storage import types
from tidings.storage.business import changes, shard_blocks
from tidings.storage.business.tables import metadata
from tidings.storage.database import insert_or_ignore

# States. A number in the last state is not served: its rows are being deleted.
ACTIVE, PAUSED, REMOVING = "active", "paused", "removing"
# Numbers of one installation, those that are being removed among them.
MAX_NUMBERS = 100


class NumberExists(Exception):
    """The installation has this number already."""


class TooManyNumbers(Exception):
    """The installation has `MAX_NUMBERS` numbers. Remove one first."""


class NoSuchWaba(Exception):
    """The number whose WABA is to be joined is not a number of the installation."""


@dataclasses.dataclass(frozen=True, slots=True)
class BusinessNumber:
    """Number that the installation sends from."""

    number: Annotated[str, types.key(20)]  # digits
    # The number's shards are `shard_blocks.SIZE` × `shard_block` + partition. 0 for the first number.
    shard_block: int
    state: Annotated[str, types.key(16)]  # `ACTIVE`, `PAUSED` or `REMOVING`
    created_at: types.UnixMilliseconds
    # Number whose WABA, app and portfolio it belongs to in the Cloud API; empty for its own.
    waba_of: Annotated[str, types.key(20), sa.DefaultClause("")] = ""

    @property
    def is_first(self) -> bool:
        """Return whether `TIDINGS_BUSINESS_NUMBER` names this number."""
        return self.shard_block == 0

    @property
    def first_shard(self) -> int:
        """Return the number of the first shard."""
        return shard_blocks.first_shard(self.shard_block)


table = metadata.table_of(
    BusinessNumber, "numbers", sa.UniqueConstraint("shard_block", name="numbers_by_block"), key=("number",)
)


async def add_first(connection: AsyncConnection, number: str) -> None:
    """Add the first number, unless there is one."""
    if await find_first(connection) is None:
        row = BusinessNumber(number, 0, ACTIVE, int(time.time() * 1000))
        await connection.execute(insert_or_ignore(connection, table), [dataclasses.asdict(row)])


async def find_first(connection: AsyncConnection) -> BusinessNumber | None:
    """Find the first number; None before the first start of an installation."""
    row = (await connection.execute(sa.select(table).where(table.c.shard_block == 0))).first()
    return BusinessNumber(*row) if row is not None else None


async def find(connection: AsyncConnection, number: str, *, lock: bool = False) -> BusinessNumber | None:
    """Find a number. `lock` prevents changes of its row until the transaction ends."""
    query = sa.select(table).where(table.c.number == number)
    row = (await connection.execute(query.with_for_update() if lock else query)).first()
    return BusinessNumber(*row) if row is not None else None


async def lock(connection: AsyncConnection, number: str) -> None:
    """Lock a number until the transaction ends, so that transactions that do so run one after the other.

    Must be the first statement, so that the others see what earlier transactions have written.
    """
    await find(connection, number, lock=True)


async def list_numbers(connection: AsyncConnection) -> Sequence[BusinessNumber]:
    """List all numbers, the first one first, then by shard block."""
    return [BusinessNumber(*row) for row in await connection.execute(sa.select(table).order_by(table.c.shard_block))]


async def list_served(connection: AsyncConnection) -> Sequence[BusinessNumber]:
    """List the numbers that are not being removed, as `list_numbers` does."""
    return [number for number in await list_numbers(connection) if number.state != REMOVING]


async def find_waba_owner(connection: AsyncConnection, number: str) -> str:
    """Find the number whose WABA a number belongs to: itself by default."""
    found = await find(connection, number)
    return (found.waba_of if found is not None else "") or number


async def list_of_waba(connection: AsyncConnection, owner: str) -> Sequence[BusinessNumber]:
    """List the other numbers that belong to the WABA of a number, as `list_numbers` does."""
    return [number for number in await list_numbers(connection) if number.waba_of == owner]


async def add(connection: AsyncConnection, number: str, *, waba_of: str = "") -> BusinessNumber:
    """Add a further number in the lowest free shard block.

    Raises `NumberExists`, `TooManyNumbers`, and `NoSuchWaba`. Must be called after `add_first`.

    waba_of: number of the installation whose WABA it joins; empty for its own WABA
    """
    # The first row is locked, so that two concurrent calls do not choose the same block.
    await connection.execute(sa.select(table.c.number).where(table.c.shard_block == 0).with_for_update())
    present = await list_numbers(connection)
    if any(other.number == number for other in present):
        raise NumberExists(number)
    if len(present) >= MAX_NUMBERS:
        raise TooManyNumbers
    if waba_of:
        waba_of = await _lock_waba_owner(connection, waba_of)
    taken = {other.shard_block for other in present}
    block = next(block for block in range(MAX_NUMBERS) if block not in taken)
    row = BusinessNumber(number, block, ACTIVE, int(time.time() * 1000), waba_of)
    await connection.execute(table.insert(), [dataclasses.asdict(row)])
    await changes.note(connection, changes.NUMBERS)
    return row


async def _lock_waba_owner(connection: AsyncConnection, number: str) -> str:
    """Return the number whose WABA a number belongs to, which cannot be removed until the transaction ends.

    Raises `NoSuchWaba`.
    """
    found = await find(connection, number, lock=True)
    if found is not None and found.waba_of:
        found = await find(connection, found.waba_of, lock=True)
    if found is None or found.state == REMOVING:
        raise NoSuchWaba(number)
    return found.number


async def set_state(connection: AsyncConnection, number: str, state: str) -> None:
    """Set the state of a number. Processes apply it within seconds."""
    await connection.execute(table.update().where(table.c.number == number).values(state=state))
    await changes.note(connection, changes.NUMBERS)


async def delete(connection: AsyncConnection, number: str) -> None:
    """Delete the row of a number, whose block is free then."""
    await connection.execute(table.delete().where(table.c.number == number))
    # Its limits are deleted before it.
    await changes.note(connection, changes.CLOUD_LIMITS)
    await changes.note(connection, changes.NUMBERS)
    await changes.note(connection, changes.UPSTREAMS)


def by_number(numbers: Sequence[BusinessNumber]) -> Mapping[str, BusinessNumber]:
    """Return the rows by number."""
    return {each.number: each for each in numbers}
