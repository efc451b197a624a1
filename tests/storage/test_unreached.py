"""Reports of Webapps about Coreapps that they do not reach."""

from __future__ import annotations

import pytest
import sqlalchemy as sa

from tests.conftest import DatabaseFactory
from tidings.storage.business import nodes, webapp_nodes, webapp_unreached
from tidings.storage.business.nodes import CoreappNode
from tidings.storage.business.webapp_nodes import WebappNode
from tidings.storage.database import Database


async def beat(database: Database, *names: str) -> None:
    async with database.transaction() as connection:
        for name in names:
            await webapp_nodes.renew(connection, WebappNode(name, f"{name}:443"), delete_after=3600)


async def record(database: Database, name: str, **seconds: float) -> None:
    async with database.transaction() as connection:
        unreached = {f"{coreapp}:6252": value for coreapp, value in seconds.items()}
        await webapp_unreached.record(connection, name, unreached)


async def reports(database: Database) -> dict[str, dict[str, int]]:
    """Return the reports, by the names of Webapp and Coreapp, in whole tens of seconds."""
    async with database.reading() as connection:
        found = await webapp_unreached.list_reports(connection)
    return {
        report.node.removesuffix(":443"): {
            address.removesuffix(":6252"): int(seconds // 10) for address, seconds in report.unreached.items()
        }
        for report in found
    }


async def age(database: Database, table: sa.Table, column: str, seconds: int) -> None:
    async with database.transaction() as connection:
        await connection.execute(table.update().values({column: table.c[column] - seconds * 1000}))


async def test_live_webapps_report_unreached_coreapps_and_no_rows_mean_all_reached(
    database_factory: DatabaseFactory,
) -> None:
    database = await database_factory("business")
    await beat(database, "w1", "w2")
    await record(database, "w1", c1=0, c2=20)
    assert await reports(database) == {"w1": {"c1": 0, "c2": 2}, "w2": {}}
    await record(database, "w2", c1=30)
    assert await reports(database) == {"w1": {"c1": 0, "c2": 2}, "w2": {"c1": 3}}


async def test_a_report_keeps_its_time_until_it_is_withdrawn(database_factory: DatabaseFactory) -> None:
    database = await database_factory("business")
    await beat(database, "w1")
    await record(database, "w1", c1=0, c2=0)
    await age(database, webapp_unreached.table, "since", 40)
    await record(database, "w1", c1=1, c3=1)
    assert await reports(database) == {"w1": {"c1": 4, "c3": 0}}
    await record(database, "w1")
    assert await reports(database) == {"w1": {}}
    await record(database, "w1", c1=1)
    assert await reports(database) == {"w1": {"c1": 0}}, "a new time after it was reached"


async def test_a_webapp_silent_for_15_seconds_reports_nothing(database_factory: DatabaseFactory) -> None:
    database = await database_factory("business")
    await beat(database, "dead")
    await record(database, "dead", c1=20)
    await age(database, webapp_nodes.table, "heartbeat_at", 16)
    assert await reports(database) == {}
    await beat(database, "w1")
    assert await reports(database) == {"w1": {}}
    await beat(database, "dead")
    assert await reports(database) == {"dead": {"c1": 2}, "w1": {}}


async def test_rows_of_unlisted_webapps_are_deleted(database_factory: DatabaseFactory) -> None:
    database = await database_factory("business")
    await beat(database, "w1", "w2")
    await record(database, "w1", c1=20)
    await record(database, "w2", c1=20)
    async with database.transaction() as connection:
        await webapp_nodes.remove(connection, "w2")
        await webapp_unreached.delete_dead(connection)
        rows = await connection.execute(sa.select(webapp_unreached.table.c.incarnation))
        assert rows.scalars().all() == ["w1"]


async def test_a_webapp_that_has_started_is_listed_from_its_first_report_on(database_factory: DatabaseFactory) -> None:
    database = await database_factory("business")
    await beat(database, "w1", "w2")
    async with database.transaction() as connection:
        await webapp_unreached.record_start(connection, "w1")
    assert await reports(database) == {"w2": {}}
    await record(database, "w1")
    assert await reports(database) == {"w1": {}, "w2": {}}


async def test_the_row_of_a_coreapp_that_was_reached_in_between_gets_a_new_time(
    database_factory: DatabaseFactory,
) -> None:
    database = await database_factory("business")
    await beat(database, "w1")
    await record(database, "w1", c1=40, c2=40)
    async with database.transaction() as connection:
        unreached = {"c1:6252": 1.0, "c2:6252": 1.0}
        await webapp_unreached.record(connection, "w1", unreached, ended={"c1:6252"})
    assert await reports(database) == {"w1": {"c1": 0, "c2": 4}}


async def test_a_webapp_takes_over_the_times_of_the_latest_process_of_its_name_that_reported(
    database_factory: DatabaseFactory,
) -> None:
    database = await database_factory("business")
    names = ("oldest", "latest", "reported nothing")
    async with database.transaction() as connection:
        for seconds, name in zip((4, 3, 2), names, strict=True):
            await webapp_nodes.renew(connection, WebappNode(name, "w1:443"), delete_after=3600)
            started = {"started_at": webapp_nodes.table.c.started_at - seconds * 1000}
            await connection.execute(
                webapp_nodes.table.update().where(webapp_nodes.table.c.incarnation == name).values(started)
            )
        await webapp_unreached.record_start(connection, "reported nothing")
    await record(database, "oldest", c1=90, c2=90, c3=90)
    await record(database, "latest", c1=30, c2=30)
    await beat(database, "other")
    await record(database, "other", c3=90)
    async with database.transaction() as connection:
        await webapp_nodes.renew(connection, WebappNode("new", "w1:443"), delete_after=3600)
        unreached = {"c1:6252": 1.0, "c2:6252": 1.0, "c3:6252": 1.0}
        await webapp_unreached.record(connection, "new", unreached, never_reached=["c1:6252", "c3:6252"])
        rows = await connection.execute(
            sa.select(webapp_unreached.table.c.address, webapp_unreached.table.c.since).where(
                webapp_unreached.table.c.incarnation == "new"
            )
        )
        since = {row.address: row.since for row in rows}
    assert since["c2:6252"] - since["c1:6252"] == pytest.approx(29_000, abs=10_000)
    assert since["c2:6252"] == since["c3:6252"]


@pytest.mark.parametrize("is_first", [True, False])
async def test_a_coreapp_of_the_previous_release_is_recognised_by_its_row(
    database_factory: DatabaseFactory, is_first: bool
) -> None:
    database = await database_factory("business")
    async with database.transaction() as connection:
        if not is_first:
            await nodes.join(connection, CoreappNode("c1", "new", "c1:6252", 5.0))
            assert [member.evaluates_reports for member in await nodes.list_members(connection)] == [True]
            await connection.execute(nodes.table.update().values(incarnation="old"))
        else:
            row = {"node": "c1", "incarnation": "old", "address": "c1:6252", "interval_ms": 5000}
            await connection.execute(nodes.table.insert().values(started_at=0, heartbeat_at=0, **row))
        assert [member.evaluates_reports for member in await nodes.list_members(connection)] == [False]
