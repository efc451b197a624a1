"""Reviews of templates: what is pending, when it can be sent and edited, and the values that others set."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import httpx
import pytest

from tests.webapp.cloud.conftest import NUMBER, WABA, Cloud, details, error
from tests.webapp.conftest import Serve, body, code
from tests.webapp.fake_coreapp import FakeCoreapp
from tidings.storage import database_clock
from tidings.storage.business import template_events, templates
from tidings.storage.business.templates import TemplateRow
from tidings.storage.database import Database
from webapp.api.templates import decisions

ACCOUNT = "15550000000"
PATH = f"/v25.0/{WABA}/message_templates"
V1 = "/v1/configs/templates"
COMPONENTS = [{"type": "BODY", "text": "Hello"}]
ORDER = {"name": "order", "language": "en_US", "category": "UTILITY", "components": COMPONENTS}
EDITED = {"components": [{"type": "BODY", "text": "Good morning"}]}
DAY_MS = 24 * 3600 * 1000

Reviewing = Callable[[float | None], Awaitable[Cloud]]


@pytest.fixture
async def reviewing(serve: Serve, coreapp: FakeCoreapp) -> Reviewing:
    """Function that starts a Webapp whose reviews take this number of milliseconds."""

    async def start(delay_ms: float | None) -> Cloud:
        served = await serve(cloud_api=True, template_review_ms=delay_ms)
        await served.log_in()
        await coreapp.until(lambda: coreapp.greetings > 0)
        return Cloud(served, served.http)

    return start


async def created(cloud: Cloud, **fields: Any) -> str:
    response = await cloud.http.post(PATH, json={**ORDER, **fields})
    assert response.status_code == 200, response.text
    return str(response.json()["id"])


async def edit(cloud: Cloud, template_id: str, **fields: Any) -> httpx.Response:
    return await cloud.http.post(f"/v25.0/{template_id}", json={**EDITED, **fields})


async def stored(database: Database) -> TemplateRow:
    async with database.reading() as connection:
        (found,) = await templates.list_templates(connection, ACCOUNT)
    return found


async def put(database: Database, **changes: Any) -> None:
    """Change the only template, as another process does."""
    row = dataclasses.replace(await stored(database), **changes)
    async with database.transaction() as connection:
        await templates.put_templates(connection, ACCOUNT, [row])


async def events(database: Database) -> Sequence[tuple[str, str, str]]:
    async with database.reading() as connection:
        found = await template_events.list_events(connection, ACCOUNT, limit=100)
    return [(event.kind, event.old_value, event.new_value) for event in found]


def message(**fields: Any) -> dict[str, Any]:
    template = {"name": "order", "language": {"code": "en_US"}}
    return {"to": "15550110001", "type": "template", "template": template, **fields}


async def send(cloud: Cloud) -> tuple[httpx.Response, httpx.Response]:
    """Send the template over the Cloud API and over v1."""
    over_cloud = await cloud.http.post(f"/v25.0/{NUMBER}/messages", json=message(messaging_product="whatsapp"))
    return over_cloud, await cloud.http.post("/v1/messages", json=message())


async def test_a_created_template_is_pending_until_its_review_ends(reviewing: Reviewing, database: Database) -> None:
    cloud = await reviewing(60_000)
    async with database.reading() as connection:
        before = await database_clock.read(connection)
    response = await cloud.http.post(PATH, json=ORDER)
    template_id = response.json()["id"]
    assert response.text == f'{{"id":"{template_id}","status":"PENDING","category":"UTILITY"}}'
    row = await stored(database)
    assert row.status == "PENDING"
    assert row.review_at is not None
    assert before + 60_000 <= row.review_at < before + 120_000
    assert (await cloud.http.get(f"/{template_id}")).json()["status"] == "PENDING"
    assert [one["id"] for one in (await cloud.http.get(PATH, params={"status": "pending"})).json()["data"]] == [
        template_id
    ]
    assert await events(database) == []


async def test_v1_creates_and_imports_pending_templates_unless_the_body_names_a_status(
    reviewing: Reviewing, database: Database
) -> None:
    cloud = await reviewing(60_000)
    [made] = (await cloud.http.post(V1, json=ORDER)).json()["templates"]
    assert made["status"] == "PENDING"
    assert (await stored(database)).review_at is not None
    [named] = (await cloud.http.post(V1, json={**ORDER, "name": "named", "status": "APPROVED"})).json()["templates"]
    assert named["status"] == "APPROVED"

    changed = {**ORDER, "components": EDITED["components"]}
    entries = [changed, {**ORDER, "name": "new"}, {**ORDER, "name": "kept", "status": "PAUSED"}]
    imported = await cloud.http.post(f"{V1}/import", json={"data": entries, "replace": True})
    assert imported.status_code == 201, imported.text
    found = {one["name"]: one["status"] for one in (await cloud.http.get(V1)).json()["templates"]}
    assert found == {"order": "PENDING", "named": "APPROVED", "new": "PENDING", "kept": "PAUSED"}
    await cloud.http.post(V1, json={**ORDER, "name": "ready", "status": "APPROVED"})
    again = [{**ORDER, "name": "ready"}, {**ORDER, "name": "named", "components": EDITED["components"]}]
    assert (await cloud.http.post(f"{V1}/import", json={"data": again, "replace": True})).status_code == 201
    found = {one["name"]: one["status"] for one in (await cloud.http.get(V1)).json()["templates"]}
    assert (found["ready"], found["named"]) == ("APPROVED", "PENDING")
    edited = ("components", "", "")
    assert await events(database) == [edited, ("status", "APPROVED", "PENDING"), edited]


async def test_without_a_review_templates_are_approved_at_once_and_can_be_edited_at_any_time(
    reviewing: Reviewing, database: Database
) -> None:
    cloud = await reviewing(None)
    template_id = await created(cloud)
    for text in ("one", "two", "three"):
        edited = await edit(cloud, template_id, components=[{"type": "BODY", "text": text}])
        assert (edited.status_code, edited.text) == (200, '{"success":true}')
    row = await stored(database)
    assert (row.status, row.review_at, row.edits) == ("APPROVED", None, [])
    assert await events(database) == [("components", "", "")] * 3


async def test_a_review_by_hand_never_ends_by_itself(reviewing: Reviewing, database: Database) -> None:
    await created(await reviewing(math.inf))
    row = await stored(database)
    assert (row.status, row.review_at) == ("PENDING", None)


UNSENDABLE = [
    ("PENDING", (404, 132001), (404, 2001)),
    ("REJECTED", (404, 132001), (400, 2060)),
    ("PAUSED", (400, 132015), (400, 2061)),
    ("DISABLED", (400, 132016), (400, 2062)),
]


@pytest.mark.parametrize(("status", "cloud_code", "v1_code"), UNSENDABLE)
async def test_a_template_that_is_not_approved_is_refused_and_an_approval_counts_at_once(
    reviewing: Reviewing,
    database: Database,
    status: str,
    cloud_code: tuple[int, int],
    v1_code: tuple[int, int],
) -> None:
    cloud = await reviewing(None)
    await created(cloud)
    assert [response.status_code for response in await send(cloud)] == [200, 201]
    await put(database, status=status)
    # The poll that each Webapp makes twice a second.
    await cloud.served.parts.resources.templates.run_once()
    over_cloud, over_v1 = await send(cloud)
    assert error(over_cloud)[:2] == cloud_code
    assert code(over_v1) == v1_code
    await put(database, status="APPROVED")
    assert [response.status_code for response in await send(cloud)] == [200, 201]


async def test_a_review_that_has_ended_lets_the_template_be_sent(reviewing: Reviewing, database: Database) -> None:
    cloud = await reviewing(0)
    await created(cloud)
    assert error(await cloud.http.post(f"/v25.0/{NUMBER}/messages", json=message(messaging_product="whatsapp")))[1] == (
        132001
    )
    async with database.transaction() as connection:
        assert await templates.apply_due(connection, ACCOUNT) == 1
    assert [response.status_code for response in await send(cloud)] == [200, 201]
    assert await events(database) == [("status", "PENDING", "APPROVED")]


async def test_an_edited_template_is_reviewed_again(reviewing: Reviewing, database: Database) -> None:
    cloud = await reviewing(60_000)
    template_id = await created(cloud)
    assert details(await edit(cloud, template_id)) == "a template with the status PENDING cannot be edited"
    await put(database, status="REJECTED", rejected_reason="SCAM", review_at=None)
    edited = await edit(cloud, template_id, category="MARKETING")
    assert (edited.status_code, edited.text) == (200, '{"success":true}')
    row = await stored(database)
    assert (row.status, row.rejected_reason, row.edits) == ("PENDING", None, [])
    assert (row.category, row.previous_category) == ("MARKETING", "UTILITY")
    assert row.components == EDITED["components"]
    assert row.review_at is not None
    assert await events(database) == [
        ("status", "PENDING", "REJECTED"),
        ("status", "REJECTED", "PENDING"),
        ("category", "UTILITY", "MARKETING"),
        ("components", "", ""),
    ]
    for status in ("DISABLED", "IN_APPEAL"):
        await put(database, status=status)
        assert details(await edit(cloud, template_id)) == f"a template with the status {status} cannot be edited"


async def test_an_approved_template_is_edited_once_a_day_and_ten_times_in_30_days(
    reviewing: Reviewing, database: Database
) -> None:
    cloud = await reviewing(60_000)
    template_id = await created(cloud)
    async with database.reading() as connection:
        now = await database_clock.read(connection)
    await put(database, status="APPROVED", edits=[now - 31 * DAY_MS])
    refused = await edit(cloud, template_id, category="MARKETING")
    assert details(refused) == "category: that of an approved template cannot be changed"
    assert (await edit(cloud, template_id)).status_code == 200
    [last] = (await stored(database)).edits
    assert now <= last < now + 60_000

    await put(database, status="APPROVED")
    refused = await edit(cloud, template_id)
    assert error(refused)[:2] == (400, 100)
    assert details(refused) == "an approved template can be edited once in 24 hours"
    await put(database, edits=[now - 25 * 3_600_000])
    assert (await edit(cloud, template_id)).status_code == 200
    ten = [now - 29 * DAY_MS + n for n in range(10)]
    await put(database, status="APPROVED", edits=ten)
    assert details(await edit(cloud, template_id)) == "an approved template can be edited 10 times in 30 days"
    await put(database, status="PAUSED")
    assert (await edit(cloud, template_id)).status_code == 200
    row = await stored(database)
    assert (row.status, row.edits) == ("PENDING", ten)


async def test_only_a_paused_template_is_unpaused(reviewing: Reviewing, database: Database) -> None:
    cloud = await reviewing(None)
    template_id = await created(cloud)
    response = await cloud.http.post(f"/v25.0/{template_id}/unpause")
    assert (response.status_code, response.text) == (
        200,
        '{"success":false,"reason":"The template has the status APPROVED."}',
    )
    await put(database, status="PAUSED")
    response = await cloud.http.post(f"/v25.0/{template_id}/unpause")
    assert (response.status_code, response.text) == (200, '{"success":true}')
    assert (await stored(database)).status == "APPROVED"
    assert await events(database) == [("status", "APPROVED", "PAUSED"), ("status", "PAUSED", "APPROVED")]
    assert error(await cloud.http.post("/5000000000000000/unpause"))[:2] == (400, 100)


async def test_quality_reason_and_previous_category_are_shown(reviewing: Reviewing, database: Database) -> None:
    cloud = await reviewing(None)
    template_id = await created(cloud)
    names = "quality_score,rejected_reason,previous_category"
    shown = (await cloud.http.get(f"/{template_id}", params={"fields": names})).json()
    made_at = (await stored(database)).created_at // 1000
    assert shown == {
        "quality_score": {"score": "UNKNOWN", "date": made_at},
        "rejected_reason": "NONE",
        "id": template_id,
    }
    await put(
        database,
        status="REJECTED",
        rejected_reason="SCAM",
        quality="RED",
        quality_at=1_700_000_000_123,
        category="MARKETING",
        previous_category="UTILITY",
    )
    [listed] = (await cloud.http.get(PATH)).json()["data"]
    assert listed == (await cloud.http.get(f"/{template_id}")).json()
    assert list(listed.items())[4:] == [
        ("status", "REJECTED"),
        ("category", "MARKETING"),
        ("previous_category", "UTILITY"),
        ("quality_score", {"score": "RED", "date": 1_700_000_000}),
        ("rejected_reason", "SCAM"),
        ("id", template_id),
    ]
    for score, count in (("red", 1), ("UNKNOWN,RED", 1), ("GREEN", 0), ("UNKNOWN", 0)):
        found = (await cloud.http.get(PATH, params={"quality_score": score})).json()
        assert len(found["data"]) == count, score


async def test_deletions_over_both_apis_are_to_be_reported(reviewing: Reviewing, database: Database) -> None:
    cloud = await reviewing(None)
    await created(cloud)
    await created(cloud, language="de")
    assert (await cloud.http.delete(PATH, params={"name": "order"})).status_code == 200
    await created(cloud)
    assert (await cloud.http.delete(f"{V1}/order")).status_code == 200
    assert await events(database) == [("status", "APPROVED", "DELETED")] * 3


@pytest.mark.parametrize("kind", ["plain", "exported"])
async def test_an_import_with_statuses_is_unchanged_by_a_review(reviewing: Reviewing, kind: str) -> None:
    cloud = await reviewing(60_000)
    if kind == "exported":
        data = body("templates_exported")
        response = await cloud.http.post(f"{V1}/import", json=data)
        statuses = [one["status"] for one in response.json()["templates"]]
        assert statuses == ["APPROVED", "APPROVED", "IN_APPEAL", "APPROVED"]
        again = await cloud.http.post(f"{V1}/import", json=data)
        assert again.json()["templates"] == response.json()["templates"]
    else:
        for _ in range(2):
            response = await cloud.http.post(f"{V1}/import", json={"data": [ORDER]})
            assert [one["status"] for one in response.json()["templates"]] == ["PENDING"]


ROW = TemplateRow(ACCOUNT, "order", "en_US", "ns", "UTILITY", "APPROVED", [], 5)
NOW = 1_700_000_000_000


@pytest.mark.parametrize(
    ("before", "decide", "after"),
    [
        ("PENDING", decisions.approve, "APPROVED"),
        ("REJECTED", decisions.approve, "APPROVED"),
        ("PAUSED", decisions.approve, "APPROVED"),
        ("DISABLED", decisions.approve, "APPROVED"),
        ("IN_APPEAL", decisions.approve, "APPROVED"),
        ("ARCHIVED", decisions.approve, None),
        ("APPROVED", decisions.approve, "APPROVED"),
        ("PENDING", lambda row: decisions.reject(row, "SCAM"), "REJECTED"),
        ("APPROVED", lambda row: decisions.reject(row, None), "REJECTED"),
        ("PAUSED", lambda row: decisions.reject(row, None), None),
        ("APPROVED", lambda row: decisions.pause(row, NOW), "PAUSED"),
        ("PENDING", lambda row: decisions.pause(row, NOW), None),
        ("REJECTED", lambda row: decisions.pause(row, NOW), None),
        ("DISABLED", lambda row: decisions.pause(row, NOW), None),
        ("APPROVED", decisions.disable, "DISABLED"),
        ("PAUSED", decisions.disable, "DISABLED"),
        ("PENDING", decisions.disable, None),
    ],
)
def test_a_decision_is_possible_in_some_statuses_only(
    before: str, decide: Callable[[TemplateRow], TemplateRow], after: str | None
) -> None:
    row = dataclasses.replace(ROW, status=before)
    if after is None:
        with pytest.raises(decisions.ImpossibleDecision, match=f"order in en_US is {before}: only templates that are"):
            decide(row)
    else:
        assert decide(row).status == after


def test_a_template_is_paused_for_three_and_six_hours_and_then_disabled() -> None:
    first = decisions.pause(ROW, NOW)
    assert (first.status, first.pauses, first.review_at) == ("PAUSED", 1, NOW + 10_800_000)
    assert decisions.pause(first, NOW + 1) is first
    again = decisions.approve(first)
    assert (again.status, again.pauses, again.review_at) == ("APPROVED", 1, None)
    second = decisions.pause(again, NOW)
    assert (second.status, second.pauses, second.review_at) == ("PAUSED", 2, NOW + 21_600_000)
    third = decisions.pause(decisions.approve(second), NOW)
    assert (third.status, third.review_at) == ("DISABLED", None)


@pytest.mark.parametrize(
    ("title", "duration_ms", "pauses", "ends_at"),
    [
        ("FIRST_PAUSE", None, 1, NOW + 10_800_000),
        ("SECOND_PAUSE", None, 2, NOW + 21_600_000),
        ("SECOND_PAUSE", 5_000, 2, NOW + 5_000),
        ("RATE_LIMITING_PAUSE", None, 0, None),
        ("RATE_LIMITING_PAUSE", 5_000, 0, NOW + 5_000),
        (None, 5_000, 1, NOW + 5_000),
    ],
)
def test_a_pause_may_have_another_title_and_duration(
    title: str | None, duration_ms: int | None, pauses: int, ends_at: int | None
) -> None:
    paused = decisions.pause(ROW, NOW, title=title, duration_ms=duration_ms)
    assert (paused.status, paused.pauses, paused.review_at) == ("PAUSED", pauses, ends_at)


def test_an_announced_category_is_kept_until_the_template_moves() -> None:
    announced = decisions.recategorise(ROW, "MARKETING", NOW)
    assert (announced.category, announced.next_category, announced.category_at) == ("UTILITY", "MARKETING", NOW)
    assert decisions.recategorise(announced, "UTILITY") == ROW
    assert decisions.recategorise(announced, "UTILITY", NOW) == ROW
    moved = decisions.recategorise(announced, "MARKETING")
    assert (moved.category, moved.previous_category, moved.next_category, moved.category_at) == (
        "MARKETING",
        "UTILITY",
        None,
        None,
    )
    assert decisions.recategorise(ROW, "UTILITY", NOW) is ROW


async def test_an_announced_category_is_shown_on_request(reviewing: Reviewing, database: Database) -> None:
    cloud = await reviewing(None)
    template_id = await created(cloud)
    path = f"/{template_id}?fields=category,correct_category"
    assert (await cloud.http.get(path)).json() == {"category": "UTILITY", "id": template_id}
    await put(database, next_category="MARKETING", category_at=NOW)
    shown = (await cloud.http.get(path)).json()
    assert shown == {"category": "UTILITY", "correct_category": "MARKETING", "id": template_id}


@pytest.mark.parametrize(("status", "able"), [("APPROVED", "AVAILABLE"), ("PAUSED", "BLOCKED"), ("PENDING", "BLOCKED")])
async def test_the_health_of_a_template_says_whether_it_can_be_sent(
    reviewing: Reviewing, database: Database, status: str, able: str
) -> None:
    cloud = await reviewing(None)
    template_id = await created(cloud)
    await put(database, status=status)
    shown = (await cloud.http.get(f"/{template_id}?fields=health_status")).json()
    entity = {"entity_type": "MESSAGE_TEMPLATE", "id": template_id, "can_send_message": able}
    assert shown == {"health_status": {"can_send_message": able, "entities": [entity]}, "id": template_id}
