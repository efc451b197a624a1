"""History of templates, and the times to live that they give messages."""

from __future__ import annotations

from tests.conftest import DatabaseFactory
from tidings.storage.business import template_history, template_ttls
from tidings.storage.business.template_history import TemplateHistory

ACCOUNT = "15550000000"
HOUR_MS, DAY_MS = 3_600_000, 86_400_000
NOW = 1_800_000_000_000


async def test_creations_are_known_for_an_hour_and_deletions_for_30_days(database_factory: DatabaseFactory) -> None:
    database = await database_factory("business")
    async with database.transaction() as connection:
        assert await template_history.find(connection, ACCOUNT, NOW) == TemplateHistory([], {})
        await template_history.note_created(connection, ACCOUNT, NOW)
        await template_history.note_deleted(connection, ACCOUNT, "order", NOW)
        await template_history.note_created(connection, ACCOUNT, NOW + 1)
        known = await template_history.find(connection, ACCOUNT, NOW + HOUR_MS)
        assert known == TemplateHistory([NOW + 1], {"order": NOW})
        known = await template_history.find(connection, ACCOUNT, NOW + 30 * DAY_MS - 1)
        assert known == TemplateHistory([], {"order": NOW})
        assert await template_history.find(connection, ACCOUNT, NOW + 30 * DAY_MS) == TemplateHistory([], {})
        assert await template_history.find(connection, "15550000001", NOW) == TemplateHistory([], {})


async def test_a_time_to_live_is_set_changed_and_removed(database_factory: DatabaseFactory) -> None:
    database = await database_factory("business")
    async with database.transaction() as connection:
        await template_ttls.put(connection, ACCOUNT, "1", None)
        await template_ttls.put(connection, ACCOUNT, "1", 60)
        await template_ttls.put(connection, ACCOUNT, "2", -1)
        await template_ttls.put(connection, ACCOUNT, "1", 90)
        assert await template_ttls.list_ttls(connection, ACCOUNT) == {"1": 90, "2": -1}
        await template_ttls.put(connection, ACCOUNT, "2", None)
        assert await template_ttls.list_ttls(connection, ACCOUNT) == {"1": 90}


async def test_the_values_of_several_templates_are_removed(database_factory: DatabaseFactory) -> None:
    database = await database_factory("business")
    async with database.transaction() as connection:
        for template_id in ("1", "2", "3"):
            await template_ttls.put(connection, ACCOUNT, template_id, 60)
        await template_ttls.remove(connection, ACCOUNT, ["1", "3", "4"])
        assert await template_ttls.list_ttls(connection, ACCOUNT) == {"2": 60}


async def test_the_newest_250_deletions_are_kept(database_factory: DatabaseFactory) -> None:
    database = await database_factory("business")
    async with database.transaction() as connection:
        for n in range(template_history.MAX_DELETED):
            # The names sort against their times.
            await template_history.note_deleted(connection, ACCOUNT, f"t{999 - n}", NOW + n)
        await template_history.note_deleted(connection, ACCOUNT, "t999", NOW + 500)
        assert len((await template_history.find(connection, ACCOUNT, NOW + 500)).deleted) == 250
        await template_history.note_deleted(connection, ACCOUNT, "last", NOW + 501)
        deleted = (await template_history.find(connection, ACCOUNT, NOW + 501)).deleted
    assert len(deleted) == 250
    assert "t998" not in deleted
    assert {"t999", "last", "t997"} <= set(deleted)
