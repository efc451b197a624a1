"""Reports of a Webapp on Coreapps that it does not reach: the first one, and times after a database outage."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any

import pymysql
import sqlalchemy as sa

from tests.conftest import DatabaseFactory
from tidings.storage.business import webapp_unreached
from tidings.storage.database import Connection, Database
from webapp.coreapps.reach_report import ReachReport
from webapp.coreapps.shard_map import Coreapp
from webapp.membership import WebappMembership


class Links:
    """Connections to the Coreapps, as the test sets them."""

    def __init__(self, *addresses: str) -> None:
        self.addresses = addresses
        self._failed_at: dict[str, float] = {}

    def coreapps(self) -> Sequence[Coreapp]:
        return [Coreapp(address, address) for address in self.addresses]

    def unreached(self) -> Mapping[str, float]:
        now = asyncio.get_running_loop().time()
        return {address: now - at for address, at in self._failed_at.items()}

    def failed(self, address: str, seconds: float) -> None:
        """Set the time since the first failed call to a Coreapp, in seconds."""
        self._failed_at[address] = asyncio.get_running_loop().time() - seconds

    def reached(self, address: str) -> None:
        self._failed_at.pop(address, None)


async def listed(database: Database) -> dict[str, dict[str, float]]:
    """Return the reports: seconds by the names of Webapp and Coreapp."""
    async with database.reading() as connection:
        return {report.node: dict(report.unreached) for report in await webapp_unreached.list_reports(connection)}


async def test_a_webapp_is_listed_once_it_is_known_of_each_coreapp_whether_it_is_reached(
    database_factory: DatabaseFactory,
) -> None:
    database = await database_factory("business")
    links = Links()
    membership = WebappMembership(database, "w1", lambda _: None)
    report = ReachReport(database, links, membership.webapp.incarnation)
    await membership.start()
    await report.run_once()
    assert await listed(database) == {}, "the shard map has not been read"
    links.addresses = ("c1", "c2")
    links.failed("c1", 0.1)
    await report.run_once()
    assert await listed(database) == {}
    links.failed("c1", 1.1)
    await report.run_once()
    assert (await listed(database))["w1"].keys() == {"c1"}


async def test_a_webapp_that_reaches_every_coreapp_is_listed_at_once(database_factory: DatabaseFactory) -> None:
    database = await database_factory("business")
    membership = WebappMembership(database, "w1", lambda _: None)
    await membership.start()
    await ReachReport(database, Links("c1"), membership.webapp.incarnation).run_once()
    assert await listed(database) == {"w1": {}}


class Away(Database):
    """Database that refuses transactions while `is_away` is set."""

    is_away = False

    @contextlib.asynccontextmanager
    async def transaction(self, **options: Any) -> AsyncIterator[Connection]:
        if self.is_away:
            raise sa.exc.OperationalError("UPDATE", {}, pymysql.err.OperationalError(2003, "cannot connect"))
        async with super().transaction(**options) as connection:
            yield connection


async def test_a_coreapp_that_was_reached_during_a_database_outage_is_reported_with_a_new_time(
    database_factory: DatabaseFactory,
) -> None:
    database = await database_factory("business")
    away = Away(database.settings, "business")
    links = Links("c1", "c2")
    membership = WebappMembership(database, "w1", lambda _: None)
    report = ReachReport(away, links, membership.webapp.incarnation)
    await membership.start()
    for address in links.addresses:
        links.failed(address, 62.0)
    await report.run_once()
    async with database.transaction() as connection:
        # The report was made a minute ago, and claimed at most 2 s.
        aged = webapp_unreached.table.c.since - 60_000
        await connection.execute(webapp_unreached.table.update().values(since=aged))
    away.is_away = True
    links.reached("c1")
    await report.run_once()
    links.failed("c1", 1.1)
    await report.run_once()
    away.is_away = False
    await report.run_once()
    await away.close()
    seconds = (await listed(database))["w1"]
    assert seconds["c2"] >= 60
    assert seconds["c1"] < 50
