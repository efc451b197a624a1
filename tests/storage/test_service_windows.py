"""Service windows on disk."""

from __future__ import annotations

from tests.conftest import DatabaseFactory
from tidings.storage.business import service_windows

ME = "15550000000"


async def test_a_repeated_message_does_not_shorten_the_window_of_a_later_one(database_factory: DatabaseFactory) -> None:
    database = await database_factory("business")
    async with database.transaction() as connection:
        await service_windows.save_last_message_at(connection, ME, {"1": 2000, "2": 1000})
        await service_windows.save_last_message_at(connection, ME, {"1": 1000, "2": 1500})
    async with database.reading() as connection:
        assert await service_windows.list_last_message_at(connection, ME, ["1", "2"]) == {"1": 2000, "2": 1500}
