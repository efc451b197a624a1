"""The owner of a shard that hangs in the middle of a transaction keeps neither its locks nor its shard."""

from __future__ import annotations

import asyncio

import pytest
import sqlalchemy as sa

from tests.conftest import DatabaseFactory
from tidings.storage import outages
from tidings.storage.business import shards
from tidings.storage.database import Database

SILENCE = 1.0


@pytest.mark.parametrize("database_engine", ["mariadb"])
async def test_a_hung_owner_loses_its_shard_despite_its_open_transaction(
    database_factory: DatabaseFactory,
) -> None:
    other = await database_factory("business")
    hung = Database(other.settings, "business", idle_timeout=3 * SILENCE)
    try:
        async with hung.transaction() as connection:
            await shards.create_shards(connection, 1)
            first = await shards.claim(connection, 0, owner="hung", address="", heartbeat_timeout=SILENCE)
        assert first is not None
        with pytest.raises(Exception) as caught:
            async with hung.transaction() as connection:
                await shards.fence(connection, first)
                # A pipelined statement, here the fence, is sent with the next one that returns a result.
                await connection.execute(sa.text("SELECT 1"))
                await asyncio.sleep(SILENCE)
                # The claim waits for the lock of the fence until the server has closed the owner's connection.
                async with asyncio.timeout(20), other.transaction() as taking:
                    second = await shards.claim(taking, 0, owner="next", address="", heartbeat_timeout=SILENCE)
                async with other.transaction() as taking:
                    third = await shards.claim(taking, 0, owner="third", address="", heartbeat_timeout=SILENCE)
        assert second is not None
        assert second.epoch == first.epoch + 1
        assert third is None, "the one that took it is not late already because it had to wait"
        assert outages.is_outage(caught.value), "the owner tries again, and finds that it owns nothing any more"
        with pytest.raises(shards.LeaseLost):
            async with hung.transaction() as connection:
                await shards.fence(connection, first)
    finally:
        await hung.close()


@pytest.mark.parametrize("database_engine", ["mariadb"])
async def test_a_connection_idle_for_too_long_is_replaced_transparently(database_factory: DatabaseFactory) -> None:
    database = Database((await database_factory("business")).settings, "business", idle_timeout=SILENCE)
    try:
        for _ in range(2):
            async with database.transaction() as connection:
                await shards.create_shards(connection, 1)
            await asyncio.sleep(2.5 * SILENCE)
    finally:
        await database.close()
