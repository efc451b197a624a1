"""Numbers that stand for users: one for each user, and one user for each, also when two processes add them."""

from __future__ import annotations

import asyncio

import pytest

from tests.conftest import DatabaseFactory
from tidings.storage.business import standins
from tidings.storage.business.standins import StandIn
from tidings.storage.database import Database, DatabaseError

ME, OTHER = "15550000000", "15550000001"
FIRST, SECOND = "999000000000001", "999000000000002"
ANN, BEN = "US.13491208655302741918", "US.ENT.11815799212886844830"


async def add(database: Database, *rows: StandIn) -> None:
    await database.commit(lambda connection: standins.add(connection, rows[0].account, rows))


async def test_a_number_is_found_by_itself_and_by_its_user(database_factory: DatabaseFactory) -> None:
    database = await database_factory("business")
    rows = [StandIn(ME, FIRST, ANN), StandIn(ME, SECOND, BEN)]
    for _ in range(2):
        # A commit whose outcome was unknown is repeated.
        await add(database, *rows, rows[0])
    await add(database, StandIn(OTHER, FIRST, BEN))
    async with database.reading() as connection:
        assert await standins.list_by_number(connection, ME, [FIRST, "999000000000003"]) == [rows[0]]
        assert await standins.list_by_user(connection, ME, [BEN, "US.1"]) == [rows[1]]
        assert await standins.list_by_user(connection, OTHER, [ANN, BEN]) == [StandIn(OTHER, FIRST, BEN)]
        # Ids are compared byte by byte.
        assert await standins.list_by_user(connection, ME, [BEN.lower()]) == []


@pytest.mark.parametrize("row", [StandIn(ME, FIRST, BEN), StandIn(ME, SECOND, ANN)])
async def test_another_user_of_a_number_and_another_number_of_a_user_are_refused(
    database_factory: DatabaseFactory, row: StandIn
) -> None:
    database = await database_factory("business")
    await add(database, StandIn(ME, FIRST, ANN))
    with pytest.raises(DatabaseError):
        await add(database, row)
    async with database.reading() as connection:
        assert await standins.list_by_number(connection, ME, [FIRST, SECOND]) == [StandIn(ME, FIRST, ANN)]


async def test_of_two_processes_that_choose_differently_one_is_refused(database_factory: DatabaseFactory) -> None:
    database = await database_factory("business")
    for n in range(5):
        rows = [StandIn(ME, f"99900000000000{n}", f"US.{n}"), StandIn(ME, f"88800000000000{n}", f"US.{n}")]
        results = await asyncio.gather(*(add(database, row) for row in rows), return_exceptions=True)
        (kept,) = (row for row, result in zip(rows, results, strict=True) if result is None)
        async with database.reading() as connection:
            assert await standins.list_by_user(connection, ME, [f"US.{n}"]) == [kept]


async def test_a_number_moves_to_another_user_who_has_none(database_factory: DatabaseFactory) -> None:
    database = await database_factory("business")
    await add(database, StandIn(ME, FIRST, ANN), StandIn(ME, SECOND, BEN))
    await add(database, StandIn(OTHER, FIRST, ANN))
    moves = [StandIn(ME, FIRST, "US.1"), StandIn(ME, FIRST, "US.2"), StandIn(ME, "999000000000003", "US.3")]
    for _ in range(2):
        await database.commit(lambda connection: standins.move(connection, ME, moves))
    # One with a number keeps it alone.
    await database.commit(lambda connection: standins.move(connection, ME, [StandIn(ME, FIRST, BEN)]))
    async with database.reading() as connection:
        assert await standins.list_by_user(connection, ME, [ANN, "US.1", "US.3"]) == []
        assert await standins.list_by_user(connection, ME, ["US.2", BEN]) == [
            StandIn(ME, FIRST, "US.2"),
            StandIn(ME, SECOND, BEN),
        ]
        assert await standins.list_by_user(connection, OTHER, [ANN]) == [StandIn(OTHER, FIRST, ANN)]
