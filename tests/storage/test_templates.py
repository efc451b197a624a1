"""Templates, and the state of threads."""

from __future__ import annotations

import dataclasses

from tests.conftest import DatabaseFactory
from tidings.storage.business import service_windows, templates
from tidings.storage.business.service_windows import Unread
from tidings.storage.business.templates import TemplateRow

ACCOUNT = "15550000000"


def make(name: str, language: str = "en", account: str = ACCOUNT) -> TemplateRow:
    return TemplateRow(
        account, name, language, "ns", "UTILITY", "APPROVED", [{"type": "BODY", "text": "你好 {{1}}"}], 5
    )


async def test_templates_are_stored_per_language_and_each_change_raises_the_version(
    database_factory: DatabaseFactory,
) -> None:
    database = await database_factory("business")
    async with database.transaction() as connection:
        assert await templates.find_version(connection, ACCOUNT) == 0
        assert await templates.add_template(connection, make("b"))
        assert await templates.add_template(connection, make("b", "de"))
        assert await templates.add_template(connection, make("a"))
        assert not await templates.add_template(connection, make("a"))
        assert await templates.add_template(connection, make("a", account="1"))
        assert await templates.find_version(connection, ACCOUNT) == 3
    async with database.transaction() as connection:
        assert await templates.list_templates(connection, ACCOUNT) == [make("a"), make("b", "de"), make("b")]
        assert await templates.delete_templates(connection, ACCOUNT, "b", "fr") == 0
        assert await templates.find_version(connection, ACCOUNT) == 3
        assert await templates.delete_templates(connection, ACCOUNT, "b") == 2
        assert await templates.delete_templates(connection, ACCOUNT, "a", "en") == 1
        assert await templates.find_version(connection, ACCOUNT) == 5
        assert await templates.list_templates(connection, ACCOUNT) == []
        assert await templates.list_templates(connection, "1") == [make("a", account="1")]


async def test_a_name_and_language_may_exist_in_two_namespaces(database_factory: DatabaseFactory) -> None:
    database = await database_factory("business")
    first, second = make("a"), dataclasses.replace(make("a"), namespace="other", parameter_format=templates.NAMED)
    async with database.transaction() as connection:
        assert await templates.add_template(connection, first)
        assert await templates.add_template(connection, second)
        assert not await templates.add_template(connection, second)
        assert await templates.list_templates(connection, ACCOUNT) == [first, second]
        changed = dataclasses.replace(first, status="PAUSED")
        await templates.put_templates(connection, ACCOUNT, [changed, make("b")])
        assert await templates.list_templates(connection, ACCOUNT) == [changed, second, make("b")]
        assert await templates.find_version(connection, ACCOUNT) == 3
        assert await templates.delete_templates(connection, ACCOUNT, "a", namespace="other") == 1
        assert await templates.list_templates(connection, ACCOUNT) == [changed, make("b")]


async def test_the_last_inbound_time_of_each_recipient_is_stored(database_factory: DatabaseFactory) -> None:
    database = await database_factory("business")
    async with database.transaction() as connection:
        await service_windows.save_heard(connection, ACCOUNT, {})
        await service_windows.save_heard(connection, ACCOUNT, {"1": 10, "2": 20})
        await service_windows.save_heard(connection, ACCOUNT, {"1": 30})
        assert await service_windows.list_heard(connection, ACCOUNT, ["1", "2", "3"]) == {"1": 30, "2": 20}


async def test_unread_messages_up_to_the_named_one_of_a_recipient_are_listed(database_factory: DatabaseFactory) -> None:
    database = await database_factory("business")
    rows = [Unread(ACCOUNT, "1", f"m{n}", 100 + n // 2) for n in range(10)] + [Unread(ACCOUNT, "2", "o", 1)]
    async with database.transaction() as connection:
        await service_windows.add_unread(connection, rows)
        await service_windows.add_unread(connection, rows)
        found = await service_windows.list_unread(connection, ACCOUNT, "1", "m4", limit=100)
        assert found[0] == "m4"
        assert set(found) == {"m0", "m1", "m2", "m3", "m4", "m5"}
        assert next(iter(await service_windows.list_unread(connection, ACCOUNT, "1", "m4", limit=2))) == "m4"
        assert await service_windows.list_unread(connection, ACCOUNT, "1", "o", limit=5) == ()
        await service_windows.delete_unread(connection, ACCOUNT, {"1": list(found)})
        assert await service_windows.list_unread(connection, ACCOUNT, "1", "m4", limit=5) == ()
        assert set(await service_windows.list_unread(connection, ACCOUNT, "1", "m9", limit=99)) == {
            "m6",
            "m7",
            "m8",
            "m9",
        }
        assert await service_windows.delete_unread_before(connection, ACCOUNT, 104, 2) == 2
        assert await service_windows.delete_unread_before(connection, ACCOUNT, 104, 2) == 1
        assert set(await service_windows.list_unread(connection, ACCOUNT, "1", "m9", limit=99)) == {"m8", "m9"}
