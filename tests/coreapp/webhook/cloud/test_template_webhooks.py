"""Changes of templates are posted to the app's callback: in the bodies of the reference, once each, after any kill."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
import sqlalchemy as sa

from coreapp import webhook_secrets
from coreapp.webhook.cloud import envelope
from coreapp.webhook.cloud import templates as template_values
from harness import polling
from tests.coreapp.conftest import BUSINESS, Killed, Running, World
from tests.coreapp.sink import SECRET
from tests.coreapp.webhook.cloud.test_cloud_bodies import IDENTITY, recorded
from tests.coreapp.webhook.cloud.test_cloud_webhooks import APP, CloudSink, receiving, rows, subscribe
from tidings.storage import database_clock
from tidings.storage.business import template_events, templates
from tidings.storage.business.template_events import TemplateEvent
from tidings.storage.business.templates import TemplateRow

STATUS, QUALITY, CATEGORY, COMPONENTS = (
    "message_template_status_update",
    "message_template_quality_update",
    "template_category_update",
    "message_template_components_update",
)
ORDER = TemplateRow(BUSINESS, "order", "en_US", "ns", "UTILITY", "APPROVED", [{"type": "BODY", "text": "Hi"}], 5)
ORDER_ID = 5392530142251605


@pytest.fixture
async def app_sink() -> AsyncIterator[CloudSink]:
    async with receiving(webhook_secrets.app_secret(SECRET, APP)) as sink:
        yield sink


def event_of(case: dict[str, Any]) -> TemplateEvent:
    return TemplateEvent(
        id="evt_1",
        account=BUSINESS,
        version=1,
        position=0,
        kind=case["kind"],
        namespace="ns",
        name="order",
        language="en_US",
        category="MARKETING",
        old_value=case["old"],
        new_value=case["new"],
        reason=case["reason"],
        info=case.get("info", {}),
        created_at=1_700_000_000_999,
    )


@pytest.mark.parametrize("case", recorded("template_webhooks"), ids=lambda case: case["case"])
def test_a_change_of_a_template_has_the_bytes_of_the_reference(case: dict[str, Any]) -> None:
    change = {"value": case["value"], "field": case["field"]}
    entry = {"id": "2397639735729717", "time": 1700000000, "changes": [change]}
    body = {"object": "whatsapp_business_account", "entry": [entry]}
    text = json.dumps(body, separators=(",", ":")).replace("/", "\\/").replace("@", "\\u0040")
    event = event_of(case)
    made = envelope.of_account(IDENTITY, case["field"], template_values.value(event), 1700000000)
    assert template_values.FIELDS[event.kind] == case["field"]
    assert made.decode("ascii") == text


async def put(world: World, **changes: Any) -> None:
    async with world.database.transaction() as connection:
        await templates.put_templates(connection, BUSINESS, [dataclasses.replace(ORDER, **changes)])


async def status(world: World) -> str:
    async with world.database.reading() as connection:
        (found,) = await templates.list_templates(connection, BUSINESS)
    return found.status


async def count_events(world: World) -> int:
    async with world.database.reading() as connection:
        return len(await template_events.list_events(connection, BUSINESS, limit=100))


def changes_of(sink: CloudSink) -> list[tuple[str, str]]:
    """Return field and new value of each accepted post."""
    found = []
    for post in sink.posts:
        (entry,) = post.body["entry"]
        (change,) = entry["changes"]
        value = change["value"]
        new = value.get("event") or value.get("new_quality_score") or value.get("new_category")
        if post.status == 200:
            found.append((change["field"], new))
    return found


async def handled(running: Running) -> None:
    """Have the changes so far committed as callbacks, or dropped."""
    await running.shard.webhook.template_events.run_once()


async def test_an_event_that_cannot_be_reported_closes_no_shard(
    world: World, app_sink: CloudSink, caplog: pytest.LogCaptureFixture
) -> None:
    await subscribe(world, app_sink.url, fields=("messages", STATUS))
    running = await world.start()
    await world.connected(running)
    shard = running.shard
    case = next(case for case in recorded("template_webhooks") if case["kind"] == "status")
    async with world.database.transaction() as connection:
        later = dataclasses.replace(event_of(case), id="evt_2", position=1)
        await template_events.add(connection, [dataclasses.replace(event_of(case), kind="colour"), later])
        await connection.execute(sa.text("UPDATE template_events SET info = '{' WHERE id = 'evt_2'"))
    await put(world)
    await polling.until(lambda: "templates.not_reported" in caplog.text)
    async with world.database.transaction() as connection:
        await connection.execute(sa.text("UPDATE template_events SET info = '{}' WHERE id = 'evt_2'"))
    await app_sink.signals.until(lambda: len(app_sink.posts) == 1)
    assert app_sink.posts[0].event_ids == ["evt_2"]
    assert await count_events(world) == 0
    assert "templates.unknown_event" in caplog.text
    assert running.shard is shard


async def test_invalid_components_do_not_delay_other_events(
    world: World, app_sink: CloudSink, caplog: pytest.LogCaptureFixture
) -> None:
    await subscribe(world, app_sink.url, fields=("messages", STATUS, COMPONENTS))
    await world.start()
    await put(world)
    await put(world, components=[{"text": "without a type"}, {"type": "BUTTONS", "buttons": None}])
    await put(world, status="PAUSED")
    await app_sink.signals.until(lambda: (STATUS, "PAUSED") in changes_of(app_sink))
    assert await count_events(world) == 0
    assert "templates.unreadable_event" in caplog.text


async def test_a_changed_example_causes_no_event(world: World) -> None:
    await put(world, components=[{"type": "HEADER", "format": "IMAGE", "example": {"header_handle": ["a"]}}])
    await put(world, components=[{"type": "HEADER", "format": "IMAGE", "example": {"header_handle": ["b"]}}])
    assert await count_events(world) == 0


async def test_each_change_is_posted_once_to_the_app_in_order(world: World, app_sink: CloudSink) -> None:
    await subscribe(world, app_sink.url, fields=("messages", STATUS, QUALITY, CATEGORY))
    await world.start()
    await put(world)
    await put(world, status="PAUSED")
    await app_sink.signals.until(lambda: changes_of(app_sink) == [(STATUS, "PAUSED")])
    (post,) = app_sink.posts
    (entry,) = post.body["entry"]
    assert isinstance(entry["time"], int)
    assert list(entry) == ["id", "time", "changes"]
    assert entry["id"] == "2397639735729717"
    assert entry["changes"][0]["value"]["message_template_id"] == ORDER_ID
    await put(world, status="PAUSED", quality="RED")
    await put(world, status="APPROVED", quality="GREEN", category="MARKETING")
    async with world.database.transaction() as connection:
        assert await templates.delete_templates(connection, BUSINESS, "order") == 1
    expected = [
        (STATUS, "PAUSED"),
        (QUALITY, "RED"),
        (STATUS, "APPROVED"),
        (QUALITY, "GREEN"),
        (CATEGORY, "MARKETING"),
        (STATUS, "DELETED"),
    ]
    await app_sink.signals.until(lambda: len(changes_of(app_sink)) == 6)
    assert changes_of(app_sink) == expected
    assert len({event for post in app_sink.posts for event in post.event_ids}) == 6
    assert await count_events(world) == 0
    assert not world.sink.posts


async def test_a_field_without_a_subscription_is_not_posted(world: World, app_sink: CloudSink) -> None:
    await subscribe(world, app_sink.url, fields=("messages", CATEGORY))
    running = await world.start()
    await put(world)
    await put(world, status="PAUSED", quality="RED")
    await handled(running)
    assert await count_events(world) == 0
    assert await rows(world) == []
    await put(world, status="PAUSED", quality="RED", category="MARKETING")
    await app_sink.signals.until(lambda: changes_of(app_sink) == [(CATEGORY, "MARKETING")])
    assert len(app_sink.posts) == 1


async def test_changes_without_a_cloud_callback_leave_nothing_behind(world: World) -> None:
    running = await world.start()
    await put(world)
    await put(world, status="PAUSED")
    await handled(running)
    assert await count_events(world) == 0
    assert await rows(world) == []


async def test_a_template_is_approved_when_its_review_ends_and_this_is_posted(
    world: World, app_sink: CloudSink
) -> None:
    await subscribe(world, app_sink.url, fields=(STATUS,))
    await world.start()
    async with world.database.transaction() as connection:
        now = await database_clock.read(connection)
        row = dataclasses.replace(ORDER, status="PENDING", review_at=now + 400)
        assert await templates.add_template(connection, row)
        later = dataclasses.replace(row, name="later", review_at=now + 3_600_000)
        assert await templates.add_template(connection, later)
        assert await templates.add_template(connection, dataclasses.replace(row, name="by_hand", review_at=None))
    await app_sink.signals.until(lambda: changes_of(app_sink) == [(STATUS, "APPROVED")])
    async with world.database.reading() as connection:
        found = {one.name: one for one in await templates.list_templates(connection, BUSINESS)}
        assert await database_clock.read(connection) >= now + 400
    assert {name: (one.status, one.review_at) for name, one in found.items()} == {
        "order": ("APPROVED", None),
        "later": ("PENDING", now + 3_600_000),
        "by_hand": ("PENDING", None),
    }


async def test_a_pause_ends_and_an_announced_category_applies_by_themselves(world: World, app_sink: CloudSink) -> None:
    await subscribe(world, app_sink.url, fields=(STATUS, CATEGORY))
    await world.start()
    async with world.database.transaction() as connection:
        now = await database_clock.read(connection)
        assert await templates.add_template(connection, ORDER)
    await put(world, status="PAUSED", pauses=1, review_at=now + 700, next_category="MARKETING", category_at=now + 1400)
    await app_sink.signals.until(lambda: len(changes_of(app_sink)) == 4)
    assert changes_of(app_sink) == [
        (STATUS, "PAUSED"),
        (CATEGORY, "UTILITY"),
        (STATUS, "APPROVED"),
        (CATEGORY, "MARKETING"),
    ]
    values = [post.body["entry"][0]["changes"][0]["value"] for post in app_sink.posts]
    assert values[0]["other_info"]["title"] == "FIRST_PAUSE"
    assert (values[1]["correct_category"], values[1]["category_update_timestamp"]) == (
        "MARKETING",
        (now + 1400) // 1000,
    )
    assert values[2]["other_info"]["title"] == "UNPAUSE"
    assert values[3]["previous_category"] == "UTILITY"
    async with world.database.reading() as connection:
        (found,) = await templates.list_templates(connection, BUSINESS)
    assert (found.status, found.review_at, found.category, found.category_at) == ("APPROVED", None, "MARKETING", None)


async def test_a_review_that_ended_while_no_coreapp_ran_is_handled_at_the_next_start(
    world: World, app_sink: CloudSink
) -> None:
    await subscribe(world, app_sink.url, fields=(STATUS,))
    async with world.database.transaction() as connection:
        row = dataclasses.replace(ORDER, status="PENDING", review_at=1)
        assert await templates.add_template(connection, row)
    await world.start()
    await app_sink.signals.until(lambda: changes_of(app_sink) == [(STATUS, "APPROVED")])
    assert await status(world) == "APPROVED"


async def test_a_process_that_dies_between_the_change_and_its_callback_loses_and_repeats_nothing(
    world: World, app_sink: CloudSink
) -> None:
    await subscribe(world, app_sink.url, fields=(STATUS,))
    first = await world.start()
    await put(world)
    # From here on the process can commit nothing: it dies after the change and before the callback.
    first.shard.context.journal.fail(Killed("killed"))
    await put(world, status="PAUSED")
    assert await count_events(world) == 1
    await first.killed()
    assert await count_events(world) == 1
    assert await rows(world) == []
    second = await world.start(node="second")
    await app_sink.signals.until(lambda: changes_of(app_sink) == [(STATUS, "PAUSED")])
    await handled(second)
    assert await count_events(world) == 0
    assert len(app_sink.posts) == 1


async def test_a_process_that_dies_between_the_callback_and_the_post_keeps_the_event_id(
    world: World, app_sink: CloudSink
) -> None:
    await subscribe(world, app_sink.url, fields=(STATUS,))
    app_sink.respond = lambda post: 500
    first = await world.start()
    await put(world)
    await put(world, status="PAUSED")
    await app_sink.signals.until(lambda: len(app_sink.posts) >= 1)
    await first.killed()
    async with world.database.reading() as connection:
        stored = (await connection.execute(sa.text("SELECT event FROM callbacks"))).scalars().all()
    app_sink.respond = lambda post: 200
    await world.start(node="second")
    await app_sink.signals.until(lambda: changes_of(app_sink) == [(STATUS, "PAUSED")])
    assert [{event for post in app_sink.posts for event in post.event_ids}] == [set(stored)]
    assert len(stored) == 1

    async def is_empty() -> bool:
        return await rows(world) == []

    await polling.until(is_empty, pause=0.01)
    assert changes_of(app_sink) == [(STATUS, "PAUSED")]
