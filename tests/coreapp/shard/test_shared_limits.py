"""Numbers that share a WABA share its messaging limit: they are counted together, and webhooks announce it to each."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from coreapp import webhook_secrets
from tests.conftest import DatabaseFactory
from tests.coreapp.conftest import BUSINESS, Running, World
from tests.coreapp.phones import Phone
from tests.coreapp.real_network import RealNetwork, real_network
from tests.coreapp.shard.test_several_numbers import SECOND, running_with_two
from tests.coreapp.sink import SECRET
from tests.coreapp.webhook.cloud.test_cloud_webhooks import APP, CloudSink, receiving, subscribe
from tidings.storage.business import cloud_limits
from tidings.wire import core

PEERS = ("15550110001", "15550110002", "15550110003")
QUALITY, CAPABILITY = "phone_number_quality_update", "business_capability_update"


@pytest.fixture
async def servers(world: World, database_factory: DatabaseFactory, tmp_path: Path) -> AsyncIterator[RealNetwork]:
    async with real_network(world, database_factory, tmp_path) as servers:
        for peer in PEERS:
            await servers.register(Phone(peer))
        yield servers
        await world.close()


async def code(running: Running, account: str, to: str) -> int:
    """Send a template of a number whose WABA may reach two recipients. Returns 0, or the code of the refusal."""
    content = b'{"type":"template","template":{}}'
    response: Any = await running.client.call(
        lambda n: core.AcceptMessage(n, account, to, "template", content, checked_late=True, recipient_limit=2)
    )
    return getattr(response, "code", 0)


def changes(sink: CloudSink) -> set[tuple[str, str]]:
    """Return field and number of each webhook; no number for one about the WABA."""
    found = [change for post in sink.posts for entry in post.body["entry"] for change in entry["changes"]]
    return {(change["field"], change["value"].get("display_phone_number", "")) for change in found}


async def test_the_recipients_of_all_numbers_of_a_waba_are_counted_together(world: World, servers: RealNetwork) -> None:
    running = await running_with_two(world, servers, waba_of=BUSINESS)
    one, two, three = PEERS
    assert await code(running, BUSINESS, one) == 0
    assert await code(running, SECOND, one) == 0
    assert await code(running, SECOND, two) == 0
    assert await code(running, SECOND, three) == 131048
    assert await code(running, BUSINESS, three) == 131048
    await running.stopped()


async def test_numbers_with_a_waba_each_are_counted_separately(world: World, servers: RealNetwork) -> None:
    running = await running_with_two(world, servers)
    one, two, three = PEERS
    assert [await code(running, BUSINESS, peer) for peer in (one, two, three)] == [0, 0, 131048]
    assert await code(running, SECOND, three) == 0
    await running.stopped()


async def test_a_changed_limit_of_a_waba_is_posted_for_each_number_and_its_capability_once(
    world: World, servers: RealNetwork
) -> None:
    running = await running_with_two(world, servers, waba_of=BUSINESS)
    async with receiving(webhook_secrets.app_secret(SECRET, APP)) as sink:
        await subscribe(world, sink.url, fields=(QUALITY, CAPABILITY))
        for account in (BUSINESS, SECOND):
            assert isinstance(await running.client.call(lambda n, a=account: core.SettingsChanged(n, a)), core.Done)
        async with world.database.transaction() as connection:
            await cloud_limits.change(connection, BUSINESS, {"tier": "TIER_250"})
        await sink.signals.until(lambda: len(sink.posts) == 3)
        assert changes(sink) == {(QUALITY, BUSINESS), (QUALITY, SECOND), (CAPABILITY, "")}
        for shard in running.node.shards:
            await shard.webhook.limit_events.run_once()
        await running.stopped()
        async with world.database.reading() as connection:
            assert (await cloud_limits.find(connection, SECOND)).announced_tier == "TIER_250"
        assert len(sink.posts) == 3
