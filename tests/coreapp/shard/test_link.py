"""The link for Webapps: authentication, and the responses to requests in flight."""

from __future__ import annotations

import asyncio

import pytest

from tests.coreapp.conftest import LINK_KEY, Client, World
from tidings.secrets import operator_key
from tidings.wire import connection as wire
from tidings.wire import core
from tidings.wire.ids import MessageIds

NUMBER = "15550110001"


async def connect(world: World) -> Client:
    running = await world.start()
    client = Client()
    await wire.connect(*running.server.sockets[0].getsockname()[:2], core.Response, client)
    return client


async def test_a_wrong_key_closes_the_connection(world: World) -> None:
    client = await connect(world)
    with pytest.raises(wire.Disconnected):
        await client.call(lambda n: core.Hello(n, "wrong"))
    await client.gone.wait()


async def test_a_request_before_the_hello_closes_the_connection(world: World) -> None:
    client = await connect(world)
    with pytest.raises(wire.Disconnected):
        await client.call(core.GetHealth)
    await client.gone.wait()


async def test_replays_and_purges_require_the_operator_key(world: World) -> None:
    running = await world.start()
    client = Client()
    await wire.connect(*running.server.sockets[0].getsockname()[:2], core.Response, client)
    # Webapps have the link key only.
    for key in ("", "wrong", operator_key.derive(b"x" * 32)):
        await client.call(lambda n, key=key: core.Hello(n, LINK_KEY, operator_key=key))  # type: ignore[misc]
        for make in (
            lambda n: core.ReplayCallbacks(n, [1], "eve@webapp"),
            lambda n: core.PurgeCallbacks(n, [1], "eve@webapp", "all"),
            lambda n: core.PurgeJobs(n, ["gBEG1"], "eve@webapp", "all"),
        ):
            refused = await client.call(make)
            assert isinstance(refused, core.Refused), refused
            assert refused.code == 1005
            assert "only operators" in refused.details
        assert isinstance(await client.call(core.GetHealth), core.Health)
    assert (await running.client.call(lambda n: core.ReplayCallbacks(n, [1], "ann@desk"))).count == 0


async def test_hundreds_of_concurrent_requests_get_their_own_responses(world: World) -> None:
    world.add_phones(NUMBER)
    running = await world.start()
    await world.connected(running)
    await running.client.check(NUMBER)
    requests = [running.client.send(NUMBER, str(n)) for n in range(300)]
    checks = [running.client.check(f"1555011{n:04}") for n in range(300)]
    responses = await asyncio.gather(*requests)
    contacts = await asyncio.gather(*checks)
    ids = [response.id for response in responses]
    assert ids == sorted(set(ids)), "the order of ids is the order accepted"
    assert [found[0].input for found in contacts] == [f"1555011{n:04}" for n in range(300)]


async def test_health_and_metrics_are_served(world: World) -> None:
    running = await world.start()
    await world.connected(running)
    health = await running.client.call(core.GetHealth)
    assert (health.gateway_status, health.node, health.shards) == ("connected", "first", [0])
    metrics = await running.client.call(core.GetMetrics)
    assert 'tidings_shard_epoch{shard="0"} 1.0' in metrics.text


async def test_a_message_committed_during_the_shard_s_close_is_accepted(world: World) -> None:
    """Otherwise the Webapp would call another Coreapp, and the recipient would get the message twice."""
    world.add_phones(NUMBER)
    running = await world.start()
    await world.connected(running)
    await running.client.check(NUMBER)
    await running.shard.sending.encryption.close()
    assert isinstance(await running.client.send(NUMBER), core.Accepted)


def test_message_ids_increase_within_a_millisecond_and_across_clock_jumps() -> None:
    now = 1_700_000_000_000
    ids = MessageIds(lambda: now)
    made = [ids.new() for _ in range(1000)]
    now -= 5_000
    made += [ids.new() for _ in range(1000)]
    now += 10_000
    made += [ids.new() for _ in range(1000)]
    assert made == sorted(set(made))
    assert {len(made_id) for made_id in made} == {27}
    assert all(made_id.isascii() and made_id.isalnum() for made_id in made)
