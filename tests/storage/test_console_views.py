"""Audits and Webapps that the console lists, on both databases."""

from __future__ import annotations

from tests.conftest import DatabaseFactory
from tidings.storage.business import callback_purges, callback_replays, console_views, queue_views, webapp_nodes
from tidings.storage.business.callback_purges import CallbackPurgeRow
from tidings.storage.business.callback_replays import Replay
from tidings.storage.business.webapp_nodes import WebappNode

ANN, BEN = "ann (console 0a)", "ben (console 0b)"


async def test_the_audit_joins_replays_of_one_request_and_purges(database_factory: DatabaseFactory) -> None:
    database = await database_factory("business")
    async with database.transaction() as connection:
        await callback_replays.add(connection, [Replay(n, 2000, 0, ANN) for n in range(3)])
        await callback_replays.add(connection, [Replay(9, 1000, 1, BEN), Replay(10, 3000, 32, BEN)])
        await callback_purges.add(connection, CallbackPurgeRow(2500, 1, BEN, "status dead", 7))
        found = await console_views.list_audit(connection, [0, 1], limit=10)
    assert [(row.at, row.shard, row.by, row.count, row.is_purge) for row in found] == [
        (2500, 1, BEN, 7, True),
        (2000, 0, ANN, 3, False),
        (1000, 1, BEN, 1, False),
    ]


async def test_lost_webapps_are_listed_with_their_silence(database_factory: DatabaseFactory) -> None:
    database = await database_factory("business")
    async with database.transaction() as connection:
        for name in ("a", "b"):
            await webapp_nodes.renew(connection, WebappNode(name * 32, f"{name}:9090"), forget=3600)
        late = webapp_nodes.table.c.heartbeat_at - 60_000
        old = webapp_nodes.table.update().where(webapp_nodes.table.c.node == "b:9090").values(heartbeat_at=late)
        await connection.execute(old)
        found = await console_views.list_webapps(connection)
    assert [(row.node, row.is_live) for row in found] == [("a:9090", True), ("b:9090", False)]
    assert found[1].heartbeat_age >= 60


async def test_jobs_of_given_messages_are_found(database_factory: DatabaseFactory) -> None:
    database = await database_factory("business")
    async with database.reading() as connection:
        assert await queue_views.list_jobs_of(connection, ["gBEG1"]) == []
