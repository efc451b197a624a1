"""Templates are created, edited and deleted in the WABA, and stored here as the WABA has them."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Mapping
from typing import Any

import pytest

from coreapp.upstream import change_calls, template_changes
from coreapp.upstream import templates as mirror
from harness import polling
from tests.coreapp.conftest import BUSINESS, Running, World
from tests.coreapp.upstream.scripted_cloud import ScriptedCloud
from tests.coreapp.upstream.scripted_templates import CUT, HOLD
from tests.coreapp.upstream.test_templates import NAMESPACE, stored, template, until_stored
from tidings.storage.business import templates
from tidings.wire import codes, core

BODY = [{"type": "BODY", "text": "Good morning {{1}}"}]
ORDER = {"name": "order", "language": "en_US", "category": "UTILITY", "components": BODY}


async def change(
    running: Running, action: str, definition: Mapping[str, Any] | None = None, *, language: str = "en_US"
) -> core.Done | core.Refused:
    """Request a change of the template `order` as a Webapp does. Returns the Coreapp's response."""
    body = json.dumps(definition).encode() if definition is not None else b""
    response = await running.client.call(lambda n: core.ChangeTemplate(n, BUSINESS, action, "order", language, body))
    assert isinstance(response, core.Done | core.Refused)
    return response


async def create(running: Running) -> core.Done | core.Refused:
    return await change(running, core.CREATE_TEMPLATE, ORDER)


def failed(code: int, *, subcode: int | None = None, **more: Any) -> str:
    """Return the body of an error of the Graph API."""
    error = {"message": "Title", "type": "OAuthException", "code": code, "fbtrace_id": "A", **more}
    return json.dumps({"error": error if subcode is None else {**error, "error_subcode": subcode}})


async def started(world: World, cloud: ScriptedCloud, *names: str) -> Running:
    """Start a Coreapp, and wait until it has mirrored these templates."""
    cloud.templates = [template(name, id=f"80{place}") for place, name in enumerate(names)]
    running = await world.start()
    await until_stored(world, *names)
    return running


async def test_a_created_template_is_in_the_waba_and_stored_when_the_response_arrives(
    upstream_world: World, cloud: ScriptedCloud
) -> None:
    running = await started(upstream_world, cloud, "a")
    assert isinstance(await create(running), core.Done)
    assert cloud.template_changes.calls == [("POST", {}, ORDER)]
    _, order = await stored(upstream_world)
    assert (order.name, order.language, order.status, order.category) == ("order", "en_US", "PENDING", "UTILITY")
    assert (order.namespace, order.components) == (NAMESPACE, BODY)


async def test_an_edited_template_has_what_the_waba_made_of_it(upstream_world: World, cloud: ScriptedCloud) -> None:
    running = await started(upstream_world, cloud, "order", "order_2")
    before, _ = await stored(upstream_world)
    response = await change(running, core.EDIT_TEMPLATE, {"components": BODY})
    assert isinstance(response, core.Done)
    assert cloud.template_changes.calls == [("POST", {}, {"components": BODY})]
    after, other = await stored(upstream_world)
    assert (after.components, after.status, after.created_at) == (BODY, "PENDING", before.created_at)
    assert other.status == "APPROVED"


async def test_a_template_is_deleted_in_one_language_or_in_all(upstream_world: World, cloud: ScriptedCloud) -> None:
    cloud.templates = [template("order", id="801"), template("order", id="802", language="de"), template("z", id="803")]
    running = await upstream_world.start()
    await until_stored(upstream_world, "order", "order", "z")
    assert isinstance(await change(running, core.DELETE_TEMPLATE, language="de"), core.Done)
    assert [(row.name, row.language) for row in await stored(upstream_world)] == [("order", "en_US"), ("z", "en_US")]
    assert isinstance(await change(running, core.DELETE_TEMPLATE, language=""), core.Done)
    assert [row.name for row in await stored(upstream_world)] == ["z"]
    queries = [query for _, query, _ in cloud.template_changes.calls]
    assert queries == [{"name": "order", "hsm_id": "802"}, {"name": "order"}]
    assert [one["name"] for one in cloud.templates] == ["z"]


async def test_a_template_that_messages_use_stays_with_the_status_of_the_waba(
    upstream_world: World, cloud: ScriptedCloud
) -> None:
    running = await started(upstream_world, cloud, "order")
    cloud.template_changes.response = (200, '{"success":true}')
    cloud.templates = [template("order", id="800", status="PENDING_DELETION")]
    assert isinstance(await change(running, core.DELETE_TEMPLATE), core.Done)

    async def is_shown() -> bool:
        return [row.status for row in await stored(upstream_world)] == ["PENDING_DELETION"]

    await polling.until(is_shown, seconds=10.0, pause=0.01)


@pytest.mark.parametrize("action", [core.EDIT_TEMPLATE, core.DELETE_TEMPLATE])
async def test_a_template_that_the_waba_lacks_is_not_found(
    upstream_world: World, cloud: ScriptedCloud, action: str
) -> None:
    running = await started(upstream_world, cloud, "order")
    response = await change(running, action, {"components": BODY}, language="de")
    assert isinstance(response, core.Refused)
    assert (response.code, response.details) == (1006, "name: the WABA has no template order in de")
    assert cloud.template_changes.calls == []


@pytest.mark.parametrize(
    ("status", "text", "code", "words"),
    [
        (400, failed(100, subcode=2388043, error_user_title="Exists", error_user_msg="There is one."), 1004, "Exists"),
        (
            400,
            failed(100, subcode=2593002, error_user_title="Not Found", error_user_msg="wasn't found"),
            1006,
            "wasn't",
        ),
        (400, failed(100, subcode=33, message="Unsupported post request."), 1006, "Unsupported post request."),
        (400, failed(100, message="(#100) The parameter name is required."), 1008, "The parameter name is required"),
        (400, failed(100, subcode=2388072, error_user_msg="The body is too long."), 1009, "The body is too long."),
        (400, failed(131009, error_data={"details": "too many buttons"}), 1009, "too many buttons"),
        (403, failed(10), 1005, "Title"),
        (403, failed(200), 1005, "Title"),
        (401, failed(190), 1000, "Title"),
        (400, failed(80008), 1015, "Title"),
        (429, failed(999), 1015, "Title"),
        (429, "<html>", 1015, "HTTP 429"),
        (400, failed(999), 1025, "Title"),
        (503, failed(2), 1016, "Title"),
        (500, failed(131000), 1000, "Title"),
    ],
)
async def test_errors_of_the_cloud_api_become_those_of_v1(
    upstream_world: World, cloud: ScriptedCloud, status: int, text: str, code: int, words: str
) -> None:
    running = await started(upstream_world, cloud, "a")
    cloud.template_changes.response = (status, text)
    response = await create(running)
    assert isinstance(response, core.Refused)
    assert response.code == code
    assert words in response.details
    assert ("is unknown" in response.details) == (status >= 500)
    assert (response.retry_after > 0) == (codes.find(code).status in (429, 503))
    assert [row.name for row in await stored(upstream_world)] == ["a"]


@pytest.mark.parametrize(("given", "seconds"), [("7", 7), ("", 60), ("99999999", 3600), ("Fri, 27 Nov 2026", 60)])
async def test_a_rate_limit_names_the_seconds_to_wait(
    upstream_world: World, cloud: ScriptedCloud, given: str, seconds: int
) -> None:
    running = await started(upstream_world, cloud, "a")
    cloud.template_changes.response, cloud.template_changes.retry_after = (400, failed(80007)), given
    response = await create(running)
    assert isinstance(response, core.Refused)
    assert (response.code, response.retry_after) == (1015, seconds)


@pytest.mark.parametrize(
    "hostile",
    [
        (502, "<html><h1>Bad Gateway</h1>"),
        (200, "<html>"),
        (200, '{"id":"90'),
        (200, '{"id":"../../me"}'),
        (200, '{"id":7}'),
        (200, "{}"),
        (403, "forbidden"),
        CUT,
    ],
)
async def test_a_response_that_is_not_one_of_the_cloud_api_leaves_the_outcome_open(
    upstream_world: World, cloud: ScriptedCloud, hostile: tuple[int, str] | str
) -> None:
    running = await started(upstream_world, cloud, "a")
    cloud.template_changes.response = hostile
    response = await create(running)
    assert isinstance(response, core.Refused)
    assert response.code == codes.NOT_READY
    assert "is unknown" in response.details
    assert response.retry_after > 0
    assert [row.name for row in await stored(upstream_world)] == ["a"]


async def test_a_change_whose_response_is_lost_is_mirrored_soon(upstream_world: World, cloud: ScriptedCloud) -> None:
    running = await started(upstream_world, cloud, "a")
    cloud.template_changes.response, cloud.template_changes.is_lost = CUT, True
    response = await create(running)
    assert isinstance(response, core.Refused)
    await until_stored(upstream_world, "a", "order")


async def test_a_template_that_cannot_be_read_after_the_change_is_mirrored_soon(
    upstream_world: World, cloud: ScriptedCloud
) -> None:
    running = await started(upstream_world, cloud, "a")
    cloud.template_changes.shown = (200, '{"name":"order","lang')
    response = await create(running)
    assert isinstance(response, core.Refused)
    assert response.code == codes.NOT_READY
    assert "the WABA has changed the template" in response.details
    await until_stored(upstream_world, "a", "order")


async def test_a_template_with_texts_that_are_too_long_for_the_tables_is_not_stored(
    upstream_world: World, cloud: ScriptedCloud
) -> None:
    running = await started(upstream_world, cloud, "a")
    cloud.template_changes.shown = (200, json.dumps(template("x" * 513)))
    response = await create(running)
    assert isinstance(response, core.Refused)
    assert response.code == codes.NOT_READY
    await until_stored(upstream_world, "a", "order")


async def test_a_hung_cloud_api_fails_a_call_within_9_seconds(upstream_world: World, cloud: ScriptedCloud) -> None:
    running = await started(upstream_world, cloud, "a")
    cloud.template_changes.response = HOLD
    started_at = time.monotonic()
    response = await create(running)
    assert time.monotonic() - started_at < 9.0
    assert isinstance(response, core.Refused)
    assert response.code == codes.NOT_READY
    assert "does not respond within 6 s: whether the WABA has changed the template is unknown" in response.details
    assert [row.name for row in await stored(upstream_world)] == ["a"]


async def test_an_unreachable_cloud_api_changes_nothing(upstream_world: World, cloud: ScriptedCloud) -> None:
    running = await started(upstream_world, cloud, "a")
    await cloud.stop()
    response = await create(running)
    assert isinstance(response, core.Refused)
    assert response.code == codes.NOT_READY
    assert "nothing was changed" in response.details
    assert [row.name for row in await stored(upstream_world)] == ["a"]


async def test_a_failed_read_before_the_change_changes_nothing(upstream_world: World, cloud: ScriptedCloud) -> None:
    running = await started(upstream_world, cloud, "order")
    cloud.template_response = (500, "<html>")
    response = await change(running, core.EDIT_TEMPLATE, {"components": BODY})
    assert isinstance(response, core.Refused)
    assert response.code == codes.NOT_READY
    assert "HTTP 500 without an error of the Cloud API: nothing was changed" in response.details
    assert cloud.template_changes.calls == []


async def test_a_ninth_change_at_the_same_time_is_refused(
    upstream_world: World, cloud: ScriptedCloud, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert template_changes.AT_ONCE == 8
    monkeypatch.setattr(change_calls, "CHANGE_SECONDS", 60.0)
    running = await started(upstream_world, cloud, "a")
    cloud.template_changes.response = HOLD
    held = [asyncio.create_task(create(running)) for _ in range(8)]
    await polling.until(lambda: len(cloud.template_changes.calls) == 8, seconds=10.0, pause=0.01)
    response = await create(running)
    assert isinstance(response, core.Refused)
    assert response.code == codes.OVERLOADED
    cloud.released.set()
    await asyncio.gather(*held)


async def test_a_list_that_was_read_before_a_change_does_not_undo_it(
    upstream_world: World, cloud: ScriptedCloud, monkeypatch: pytest.MonkeyPatch
) -> None:
    running = await started(upstream_world, cloud, "a")
    assert running.shard.upstream is not None
    read = mirror.read

    async def read_slowly(*arguments: Any) -> Any:
        found = await read(*arguments)
        assert isinstance(await create(running), core.Done)
        return found

    monkeypatch.setattr(mirror, "read", read_slowly)
    assert not await running.shard.upstream.mirror.run_once()
    assert [row.name for row in await stored(upstream_world)] == ["a", "order"]


async def test_a_change_for_a_number_of_the_network_is_refused(world: World) -> None:
    running = await world.start()
    response = await create(running)
    assert isinstance(response, core.Refused)
    assert response.code == codes.NOT_PRIMARY_COREAPP
    assert await world.database.query(lambda connection: templates.list_templates(connection, BUSINESS)) == []
