"""Templates, and the state of threads."""

from __future__ import annotations

import dataclasses

from tests.conftest import DatabaseFactory
from tidings.storage import database_clock
from tidings.storage.business import service_windows, template_events, templates
from tidings.storage.business.service_windows import UnreadMessage
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
        await service_windows.save_last_message_at(connection, ACCOUNT, {})
        await service_windows.save_last_message_at(connection, ACCOUNT, {"1": 10, "2": 20})
        await service_windows.save_last_message_at(connection, ACCOUNT, {"1": 30})
        assert await service_windows.list_last_message_at(connection, ACCOUNT, ["1", "2", "3"]) == {"1": 30, "2": 20}


async def test_unread_messages_up_to_the_named_one_of_a_recipient_are_listed(database_factory: DatabaseFactory) -> None:
    database = await database_factory("business")
    rows = [UnreadMessage(ACCOUNT, "1", f"m{n}", 100 + n // 2) for n in range(10)] + [
        UnreadMessage(ACCOUNT, "2", "o", 1)
    ]
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


async def test_each_change_of_a_template_has_an_event_and_nothing_else_has_one(
    database_factory: DatabaseFactory,
) -> None:
    database = await database_factory("business")
    first, second = make("a"), make("a", "de")
    async with database.transaction() as connection:
        before = await database_clock.read(connection)
        assert await templates.add_template(connection, first)
        await templates.put_templates(connection, ACCOUNT, [first, second])
        assert await template_events.list_events(connection, ACCOUNT, limit=10) == []
        moved = dataclasses.replace(first, status="PAUSED", quality="RED", category="MARKETING")
        info = {"title": "SECOND_PAUSE", "description": "why"}
        await templates.put_templates(connection, ACCOUNT, [moved, second], reason="NONE", info=info)
        unrated = dataclasses.replace(second, quality="UNKNOWN", quality_at=7, edits=[1, 2])
        await templates.put_templates(connection, ACCOUNT, [unrated])
    async with database.transaction() as connection:
        assert await templates.delete_templates(connection, ACCOUNT, "a") == 2
        assert await templates.add_template(connection, make("b", account="1"))
        assert await templates.delete_templates(connection, "1", "b") == 1
    async with database.transaction() as connection:
        found = await template_events.list_events(connection, ACCOUNT, limit=10)
        changed = [(e.name, e.language, e.namespace, e.kind, e.old_value, e.new_value, e.reason) for e in found]
        assert changed == [
            ("a", "en", "ns", "status", "APPROVED", "PAUSED", "NONE"),
            ("a", "en", "ns", "quality", "UNKNOWN", "RED", None),
            ("a", "en", "ns", "category", "UTILITY", "MARKETING", None),
            ("a", "de", "ns", "status", "APPROVED", "DELETED", None),
            ("a", "en", "ns", "status", "PAUSED", "DELETED", None),
        ]
        assert [event.info for event in found] == [info, {}, {}, {}, {}]
        assert {event.category for event in found[:3]} == {"MARKETING"}
        assert all(before <= event.created_at < before + 60_000 for event in found)
        ids = [event.id for event in found]
        assert len(set(ids)) == 5
        assert all(len(event_id) == 36 and event_id.startswith("evt_") for event_id in ids)
        assert await template_events.list_events(connection, ACCOUNT, limit=2) == found[:2]
        await template_events.delete(connection, ids[:4])
        assert await template_events.list_events(connection, ACCOUNT, limit=10) == found[4:]
        assert len(await template_events.list_events(connection, "1", limit=10)) == 1


async def test_pauses_end_and_announced_categories_apply_by_the_clock_of_the_database(
    database_factory: DatabaseFactory,
) -> None:
    database = await database_factory("business")
    async with database.transaction() as connection:
        now = await database_clock.read(connection)
        for row in (
            dataclasses.replace(make("paused"), status="PAUSED", review_at=now, pauses=1),
            dataclasses.replace(make("for ever"), status="PAUSED", pauses=2),
            dataclasses.replace(make("moved"), next_category="MARKETING", category_at=now),
            dataclasses.replace(
                make("both"), status="PAUSED", review_at=now, next_category="AUTHENTICATION", category_at=now
            ),
            dataclasses.replace(make("later"), next_category="MARKETING", category_at=now + 60_000),
        ):
            assert await templates.add_template(connection, row)
        wait = await templates.next_due(connection, ACCOUNT)
        assert wait is not None
        assert -60 < wait <= 0
        assert await templates.apply_due(connection, ACCOUNT) == 3
        wait = await templates.next_due(connection, ACCOUNT)
        assert wait is not None
        assert 0 < wait <= 60
        found = {row.name: row for row in await templates.list_templates(connection, ACCOUNT)}
        events = await template_events.list_events(connection, ACCOUNT, limit=10)
    assert {
        name: (row.status, row.category, row.previous_category, row.next_category) for name, row in found.items()
    } == {
        "paused": ("APPROVED", "UTILITY", None, None),
        "for ever": ("PAUSED", "UTILITY", None, None),
        "moved": ("APPROVED", "MARKETING", "UTILITY", None),
        "both": ("APPROVED", "AUTHENTICATION", "UTILITY", None),
        "later": ("APPROVED", "UTILITY", None, "MARKETING"),
    }
    assert (found["paused"].review_at, found["paused"].pauses, found["moved"].category_at) == (None, 1, None)
    assert {(event.name, event.kind, event.old_value, event.new_value) for event in events} == {
        ("paused", "status", "PAUSED", "APPROVED"),
        ("moved", "category", "UTILITY", "MARKETING"),
        ("both", "status", "PAUSED", "APPROVED"),
        ("both", "category", "UTILITY", "AUTHENTICATION"),
    }


async def test_an_announced_category_has_an_event_once_and_pauses_have_their_titles(
    database_factory: DatabaseFactory,
) -> None:
    database = await database_factory("business")
    async with database.transaction() as connection:
        row = make("a")
        assert await templates.add_template(connection, row)
        announced = dataclasses.replace(row, next_category="MARKETING", category_at=1_700_000_000_999)
        for changed in (
            announced,
            dataclasses.replace(announced, quality="RED"),
            dataclasses.replace(announced, quality="RED", category_at=1_800_000_000_000),
            dataclasses.replace(row, quality="RED"),
            dataclasses.replace(row, quality="RED", status="PAUSED", pauses=1),
            dataclasses.replace(row, quality="RED"),
            dataclasses.replace(row, quality="RED", status="PAUSED", pauses=2),
        ):
            await templates.put_templates(connection, ACCOUNT, [changed])
        await templates.delete_templates(connection, ACCOUNT, "a")
        found = await template_events.list_events(connection, ACCOUNT, limit=20)
    assert [(event.kind, event.old_value, event.new_value, event.info) for event in found] == [
        ("next_category", "UTILITY", "MARKETING", {"at": "1700000000"}),
        ("quality", "UNKNOWN", "RED", {}),
        ("next_category", "UTILITY", "MARKETING", {"at": "1800000000"}),
        ("status", "APPROVED", "PAUSED", {"title": "FIRST_PAUSE"}),
        ("status", "PAUSED", "APPROVED", {}),
        ("status", "APPROVED", "PAUSED", {"title": "SECOND_PAUSE"}),
        ("status", "PAUSED", "DELETED", {}),
    ]


async def test_reviews_end_by_the_clock_of_the_database(database_factory: DatabaseFactory) -> None:
    database = await database_factory("business")
    async with database.transaction() as connection:
        assert await templates.next_due(connection, ACCOUNT) is None
        now = await database_clock.read(connection)
        pending = dataclasses.replace(make("due"), status="PENDING", review_at=now)
        for row in (
            pending,
            dataclasses.replace(pending, name="later", review_at=now + 3_600_000),
            dataclasses.replace(pending, name="by_hand", review_at=None),
            dataclasses.replace(pending, name="rejected", status="REJECTED"),
            dataclasses.replace(pending, account="1"),
        ):
            assert await templates.add_template(connection, row)
        wait = await templates.next_due(connection, ACCOUNT)
        assert wait is not None
        assert -60 < wait <= 0
        assert await templates.apply_due(connection, ACCOUNT) == 1
        wait = await templates.next_due(connection, ACCOUNT)
        assert wait is not None
        assert 3_500 < wait <= 3_600
        version = await templates.find_version(connection, ACCOUNT)
        assert await templates.apply_due(connection, ACCOUNT) == 0
        assert await templates.find_version(connection, ACCOUNT) == version
    async with database.transaction() as connection:
        found = {row.name: (row.status, row.review_at) for row in await templates.list_templates(connection, ACCOUNT)}
        assert found == {
            "due": ("APPROVED", None),
            "later": ("PENDING", now + 3_600_000),
            "by_hand": ("PENDING", None),
            "rejected": ("REJECTED", now),
        }
        (event,) = await template_events.list_events(connection, ACCOUNT, limit=10)
        assert (event.name, event.old_value, event.new_value) == ("due", "PENDING", "APPROVED")
        assert [row.status for row in await templates.list_templates(connection, "1")] == ["PENDING"]
