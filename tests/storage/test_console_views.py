"""Audits and Webapps that the console lists, on both databases."""

from __future__ import annotations

from tests.conftest import DatabaseFactory
from tidings.storage.business import (
    audit_entries,
    callback_purges,
    callback_replays,
    console_views,
    queue_views,
    webapp_nodes,
)
from tidings.storage.business.audit_entries import AuditAction
from tidings.storage.business.callback_purges import CallbackPurgeRow
from tidings.storage.business.callback_replays import Replay
from tidings.storage.business.webapp_nodes import WebappNode

ME, OTHER = "15550000000", "15550000001"
ANN, BEN = "ann (console 0a)", "ben (console 0b)"


async def test_the_audit_joins_replays_of_one_request_and_purges(database_factory: DatabaseFactory) -> None:
    database = await database_factory("business")
    async with database.transaction() as connection:
        await callback_replays.add(connection, [Replay(n, 2000, 0, ANN) for n in range(3)])
        await callback_replays.add(connection, [Replay(9, 1000, 1, BEN), Replay(10, 3000, 32, BEN)])
        await callback_purges.add(connection, CallbackPurgeRow(2500, 1, BEN, "status dead", 7))
        found = await console_views.list_audit(connection, ME, [0, 1], limit=10)
    assert [(row.at, row.shard, row.by, row.count, row.action) for row in found.rows] == [
        (2500, 1, BEN, 7, "purge"),
        (2000, 0, ANN, 3, "replay"),
        (1000, 1, BEN, 1, "replay"),
    ]
    assert found.floor is None


async def test_the_audit_reads_5000_replayed_callbacks_and_names_the_time_until_which_it_lacks_some(
    database_factory: DatabaseFactory,
) -> None:
    database = await database_factory("business")
    async with database.transaction() as connection:
        for shard in (0, 1):
            old = [Replay(n * 4 + shard, 1000 + n // 200, shard, ANN) for n in range(3000)]
            await callback_replays.add(connection, old)
        await callback_purges.add(connection, CallbackPurgeRow(1, 1, BEN, "status dead", 7))
        found = await console_views.list_audit(connection, ME, [0, 1], limit=50)
        newest = await console_views.list_audit(connection, ME, [0, 1], limit=5)
        of_one = await console_views.list_audit(connection, ME, [1], limit=50)
    # Of 15 times with 200 callbacks each, the last 12 of each shard are complete.
    assert [(row.at, row.count, row.is_partial) for row in found.rows] == [
        *((at, 200, False) for at in range(1014, 1002, -1) for _ in (0, 1)),
        *((1002, 100, True) for _ in (0, 1)),
        (1, 7, False),
    ]
    assert found.floor == 1002
    assert len(newest.rows) == 5
    assert newest.floor is None
    assert len(of_one.rows) == 16
    assert of_one.floor is None


async def test_a_replay_of_more_callbacks_than_are_read_hides_neither_itself_nor_those_of_other_shards(
    database_factory: DatabaseFactory,
) -> None:
    database = await database_factory("business")
    async with database.transaction() as connection:
        await callback_replays.add(connection, [Replay(n, 2000, 0, ANN) for n in range(2501)])
        await callback_replays.add(connection, [Replay(9000 + n, 1000 + n, 1, BEN) for n in range(2)])
        found = await console_views.list_audit(connection, ME, [0, 1], limit=50)
    assert [(row.at, row.shard, row.count, row.is_partial) for row in found.rows] == [
        (2000, 0, 2500, True),
        (1001, 1, 1, False),
        (1000, 1, 1, False),
    ]
    assert found.floor == 2000


async def test_actions_about_a_number_are_in_its_audit_for_a_year(database_factory: DatabaseFactory) -> None:
    database = await database_factory("business")
    async with database.transaction() as connection:
        for n in range(3):
            entry = audit_entries.make(ME, AuditAction.SHOW_MESSAGE, f"gBEG{n}", by="x" * 300, at=1000 + n)
            for _ in range(2):  # repeated, as after a lost response of the database
                await audit_entries.add(connection, entry)
        paused = audit_entries.make(OTHER, AuditAction.PAUSE_NUMBER, OTHER, by=BEN, at=999)
        await audit_entries.add(connection, paused)
        found = await console_views.list_audit(connection, ME, [0], limit=2)
        assert [(row.at, row.action, row.about, row.by, row.count) for row in found.rows] == [
            (1002, "show_message", "gBEG2", "x" * 255, None),
            (1001, "show_message", "gBEG1", "x" * 255, None),
        ]
        listed: list[audit_entries.AuditRow] = []
        after = (0, "")
        while page := await audit_entries.list_after(connection, after, limit=2):
            listed += page
            after = (page[-1].at, page[-1].id)
        assert [row.subject for row in listed] == [OTHER, "gBEG0", "gBEG1", "gBEG2"]
        assert await audit_entries.delete_before(connection, 1001, 10) == 2
        assert [row.subject for row in await audit_entries.list_after(connection, (0, ""))] == ["gBEG1", "gBEG2"]


async def test_lost_webapps_are_listed_with_their_silence(database_factory: DatabaseFactory) -> None:
    database = await database_factory("business")
    async with database.transaction() as connection:
        for name in ("a", "b"):
            await webapp_nodes.renew(connection, WebappNode(name * 32, f"{name}:9090"), delete_after=3600)
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
