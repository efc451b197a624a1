"""A number switches between the network and the Cloud API when no message is unsent."""

from __future__ import annotations

import pytest

from tests.coreapp.conftest import World
from tests.coreapp.signals import soon
from tests.coreapp.upstream.conftest import (
    ANN,
    attach,
    detach,
    post,
    send,
    send_with_unknown_outcome,
    status,
    until_no_jobs,
)
from tests.coreapp.upstream.scripted_cloud import HOLD, ScriptedCloud
from tidings.storage.business.upstreams import JobsPending

pytestmark = pytest.mark.usefixtures("short_back_off")


async def test_switching_is_refused_while_messages_are_unsent(upstream_world: World, cloud: ScriptedCloud) -> None:
    cloud.policy = lambda body: HOLD
    running = await upstream_world.start()
    await send(running)
    await cloud.signals.until(lambda: len(cloud.posts) == 1)
    with pytest.raises(JobsPending):
        await detach(upstream_world.database)
    cloud.released.set()
    await until_no_jobs(upstream_world)
    await detach(upstream_world.database)


async def test_another_url_is_refused_while_it_is_unknown_whether_a_message_was_sent(
    upstream_world: World, cloud: ScriptedCloud
) -> None:
    running, message_id = await send_with_unknown_outcome(upstream_world, cloud)
    with pytest.raises(JobsPending):
        await attach(upstream_world.database, "http://127.0.0.1:1/v25.0", changed_at=2)
    await attach(upstream_world.database, cloud.url, token="NEW", changed_at=3)
    await post(running, status(message_id, "sent"))
    await until_no_jobs(upstream_world)
    await attach(upstream_world.database, f"{cloud.url}/", changed_at=4)


async def test_a_number_switched_to_the_network_sends_there_and_back_again(
    upstream_world: World, cloud: ScriptedCloud
) -> None:
    upstream_world.add_phones(ANN)
    running = await upstream_world.start()
    await send(running, text="through the cloud")
    await until_no_jobs(upstream_world)
    await detach(upstream_world.database)
    await upstream_world.network.signals.until(lambda: upstream_world.network.live is not None)
    await upstream_world.owner(running)
    await send(running, text="through the network", checked_late=True)
    await upstream_world.network.signals.until(lambda: len(upstream_world.network.sends) == 1)
    await until_no_jobs(upstream_world)
    assert len(upstream_world.network.registrations) == 1

    await attach(upstream_world.database, cloud.url, changed_at=3)
    await soon(lambda: running.node.shards.first is not None and running.shard.upstream is not None)
    await send(running, text="through the cloud again")
    await cloud.signals.until(lambda: len(cloud.posts) == 2)
    assert len(upstream_world.network.sends) == 1
