"""Templates of the WABA are mirrored, so that v1 reports their errors before it accepts a message."""

from __future__ import annotations

from typing import Any

import pytest

from coreapp.upstream import templates as mirror
from harness import polling
from tests.coreapp.conftest import BUSINESS, World
from tests.coreapp.upstream.conftest import post
from tests.coreapp.upstream.scripted_cloud import ScriptedCloud
from tidings.storage.business import templates
from tidings.storage.business.templates import TemplateRow
from tidings.wire import core

NAMESPACE = "9d1f930f_bea0_4e35"
BODY = [{"type": "BODY", "text": "Hello {{1}}", "example": {"body_text": [["Ann"]]}}]


def template(name: str, **changes: Any) -> dict[str, Any]:
    """Return a template as the Cloud API lists it."""
    return {
        "name": name,
        "parameter_format": "POSITIONAL",
        "components": BODY,
        "language": "en_US",
        "status": "APPROVED",
        "category": "MARKETING",
        "quality_score": {"score": "GREEN", "date": 1},
        "id": "1299189242256801",
        **changes,
    }


async def stored(world: World) -> list[TemplateRow]:
    return await world.database.query(lambda connection: templates.list_templates(connection, BUSINESS))


async def until_stored(world: World, *names: str) -> list[TemplateRow]:
    """Wait until exactly these templates are stored, and return them."""

    async def holds() -> bool:
        return [row.name for row in await stored(world)] == list(names)

    await polling.until(holds, seconds=10.0, pause=0.01)
    return await stored(world)


async def test_all_pages_are_mirrored_with_the_namespace_of_the_waba(
    upstream_world: World, cloud: ScriptedCloud
) -> None:
    cloud.templates = [template(f"t{n:03}") for n in range(120)]
    cloud.templates[1] |= {"status": "REJECTED", "rejected_reason": "PROMOTIONAL"}
    await upstream_world.start()
    first, second, *_ = await until_stored(upstream_world, *(f"t{n:03}" for n in range(120)))
    assert (first.namespace, first.language, first.category, first.status) == (
        NAMESPACE,
        "en_US",
        "MARKETING",
        "APPROVED",
    )
    assert (first.components, first.quality, first.rejected_reason) == (BODY, "GREEN", None)
    assert (second.status, second.rejected_reason) == ("REJECTED", "PROMOTIONAL")


async def test_changes_and_deletions_follow_a_webhook(upstream_world: World, cloud: ScriptedCloud) -> None:
    cloud.templates = [template("a"), template("b")]
    running = await upstream_world.start()
    before = await until_stored(upstream_world, "a", "b")
    cloud.templates = [template("b", status="PAUSED"), template("c")]
    assert isinstance(await post(running, core.UpstreamEvent(core.TEMPLATE_EVENT, b"")), core.Done)
    after = await until_stored(upstream_world, "b", "c")
    assert after[0].status == "PAUSED"
    assert after[0].created_at == before[1].created_at


async def test_an_unchanged_list_writes_nothing(upstream_world: World, cloud: ScriptedCloud) -> None:
    cloud.templates = [template("a")]
    running = await upstream_world.start()
    await until_stored(upstream_world, "a")
    version = await upstream_world.database.query(lambda connection: templates.find_version(connection, BUSINESS))
    assert running.shard.upstream is not None
    assert await running.shard.upstream.mirror.run_once()
    assert await upstream_world.database.query(lambda c: templates.find_version(c, BUSINESS)) == version


@pytest.mark.parametrize(
    "response", [(500, "<html>"), (200, "{}"), (200, '{"data":[{"name":5}]}'), (400, '{"error":{"code":100}}')]
)
async def test_a_failed_read_keeps_the_templates(
    upstream_world: World, cloud: ScriptedCloud, response: tuple[int, str]
) -> None:
    cloud.templates = [template("a")]
    running = await upstream_world.start()
    await until_stored(upstream_world, "a")
    cloud.template_response = response
    assert running.shard.upstream is not None
    assert not await running.shard.upstream.mirror.run_once()
    assert [row.name for row in await stored(upstream_world)] == ["a"]


def test_the_mirror_reads_every_10_minutes() -> None:
    assert mirror.INTERVAL == 600.0
