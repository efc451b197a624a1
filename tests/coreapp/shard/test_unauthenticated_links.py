"""The link's connections before the key was received: few, short, and limited to small frames."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from coreapp.shard.link import LinkHandler, LinkKeys
from harness import metrics
from tests.coreapp.conftest import Client
from tidings.net import unauthenticated
from tidings.net.unauthenticated import UnauthenticatedLinks
from tidings.secrets import operator_key
from tidings.secrets.process_secrets import SecretKeys
from tidings.wire import connection as wire
from tidings.wire import core

KEY = "the key of this link"
Connect = Callable[[], Any]


def refused(why: str) -> float:
    return metrics.value("tidings_link_refused_total", why=why) or 0.0


@pytest.fixture
def table() -> UnauthenticatedLinks:
    return UnauthenticatedLinks(limit=2, seconds=0.2)


@pytest.fixture
def masters() -> list[bytes]:
    """Master keys on disk. The process was started with the first one."""
    return [b"1" * 32]


@pytest.fixture
async def connect(table: UnauthenticatedLinks, masters: list[bytes]) -> AsyncIterator[Connect]:
    """Yield connections to a link without shards. They are closed at the end."""
    nothing: Any = None
    keys = LinkKeys.of(KEY, SecretKeys(tuple(masters), lambda: tuple(masters), "test"))
    server = await wire.listen(
        "127.0.0.1",
        0,
        core.Request,
        lambda: LinkHandler(keys, "here", nothing, numbers=nothing, unauthenticated_links=table),
        rate=1000,
        burst=1000,
    )
    clients: list[Client] = []

    async def opened() -> Client:
        client = Client()
        await wire.connect(*server.sockets[0].getsockname()[:2], core.Response, client)
        clients.append(client)
        return client

    yield opened
    for client in clients:
        if not client.gone.is_set():
            client.connection.abort("the test is over")
    server.close()


async def greet(client: Client, key: str = KEY) -> core.Response:
    response: core.Response = await client.call(lambda n: core.Hello(n, key))
    return response


async def test_connections_without_the_link_key_are_closed_after_a_timeout(
    connect: Connect, table: UnauthenticatedLinks
) -> None:
    before = refused(unauthenticated.LATE)
    silent, webapp = await connect(), await connect()
    await greet(webapp)
    assert len(table) == 1
    await silent.gone.wait()
    assert (refused(unauthenticated.LATE) - before, len(table)) == (1, 0)
    assert isinstance(await webapp.call(core.Ping), core.Done)


async def test_a_connection_beyond_the_limit_evicts_the_oldest_unauthenticated_one(
    connect: Connect, table: UnauthenticatedLinks
) -> None:
    before = refused(unauthenticated.EVICTED)
    webapp = await connect()
    await greet(webapp)
    oldest, *_ = await connect(), await connect()
    assert isinstance(await greet(await connect()), core.Done)
    await oldest.gone.wait()
    assert refused(unauthenticated.EVICTED) - before == 1
    assert isinstance(await webapp.call(core.Ping), core.Done)


async def test_frames_are_limited_to_4_kib_until_authentication(connect: Connect) -> None:
    wrong = refused(unauthenticated.WRONG_KEY)
    for size, counted in ((4096, 0), (2048, 1)):
        with pytest.raises(wire.Disconnected):
            await greet(await connect(), "x" * size)
        assert refused(unauthenticated.WRONG_KEY) - wrong == counted
    webapp = await connect()
    await greet(webapp)
    with pytest.raises(wire.Disconnected):
        # The key is read now, and is a wrong one.
        await greet(webapp, "x" * 4096)
    assert refused(unauthenticated.WRONG_KEY) - wrong == 2


async def test_repeated_wrong_keys_log_one_line(connect: Connect, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level("INFO", logger="coreapp.shard"):
        for _ in range(5):
            with pytest.raises(wire.Disconnected):
                await greet(await connect(), "wrong")
    assert [record.getMessage() for record in caplog.records] == ["link.wrong_key"]


async def test_an_operator_is_known_by_each_master_key_that_was_added_since_the_start(
    connect: Connect, masters: list[bytes]
) -> None:
    async def purge(master: bytes) -> core.Response:
        client = await connect()
        own = operator_key.derive(master)
        assert isinstance(await client.call(lambda n: core.Hello(n, KEY, operator_key=own)), core.Done)
        response: core.Response = await client.call(lambda n: core.PurgeCallbacks(n, [], "me", "all", 0, []))
        return response

    rotated = b"2" * 32
    refusal = await purge(rotated)
    assert isinstance(refusal, core.Refused)
    assert "only operators replay and purge" in refusal.details
    masters.insert(0, rotated)
    for master in masters:
        assert "only operators" not in str(await purge(master))
