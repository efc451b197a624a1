"""The Coreapp's login at the network: refused, revoked, and restored."""

from __future__ import annotations

import pytest
from prometheus_client import REGISTRY

from coreapp.sending import network_link
from tests.coreapp.conftest import BUSINESS, World
from tests.coreapp.signals import soon
from tidings.wire import device

NUMBER = "15550110001"


def calls(call: str, result: str) -> float:
    labels = {"operation": call, "result": result}
    return REGISTRY.get_sample_value("internal_server_requests_duration_ms_count", labels) or 0.0


async def test_a_refused_login_is_retried(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(network_link, "UNAUTHORIZED_SECONDS", 0.05)
    world.network.failures[device.Login] = device.UNAUTHORIZED
    before = calls("login", device.UNAUTHORIZED)
    running = await world.start()
    await soon(lambda: calls("login", device.UNAUTHORIZED) >= before + 2)
    # After the first refusal the Coreapp registers its number again, and reopens its shard for that.
    await soon(lambda: any(shard.link.is_refused for shard in running.node.shards))
    assert not running.shard.link.connected
    assert REGISTRY.get_sample_value("tidings_upstream_connected", {"shard": "0", "number": BUSINESS}) == 0
    world.network.failures.clear()
    await soon(lambda: running.shard.link.connected)
    assert REGISTRY.get_sample_value("tidings_upstream_connected", {"shard": "0", "number": BUSINESS}) == 1


async def test_a_replaced_device_logs_in_on_a_new_connection_and_resends(world: World) -> None:
    world.add_phones(NUMBER)
    running = await world.start()
    await world.connected(running)
    await running.client.check(NUMBER)
    world.network.policy = lambda send: "hold" if len(world.network.sends) == 1 else None
    message = (await running.client.send(NUMBER)).id
    await world.network.signals.until(lambda: len(world.network.sends) == 1)
    world.network.send_frame(device.Closing(device.REPLACED, BUSINESS))
    await world.network.signals.until(lambda: world.network.logins == 2)
    await world.sink.signals.until(lambda: (message, "sent") in world.sink.labels())
    assert world.network.ids_sent() == [message, message]
    first, second = world.network.connections_of_sends
    assert first is not second
