"""Group messages and group changes when a process dies or the database is unavailable."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import sys
from collections.abc import AsyncIterator

import aiohttp
import pytest

from harness.mariadb import MariaDB
from network.groups import copies
from network.services import NodeAddresses
from tests.conftest import DatabaseFactory
from tests.network import group_support
from tests.network.group_support import changes, done, group_send, make, refusal
from tests.network.support import ALICE, BOB, CAROL, REGISTRATION_KEY, TIMEOUT, Client, Network, ids, kept, stored
from tests.network.test_outages import PROCESS
from tidings.aio import crashpoints
from tidings.storage import outages
from tidings.storage.database import Connection, Database
from tidings.storage.network import group_messages
from tidings.wire import device


@contextlib.asynccontextmanager
async def mortal_process(network: Network, point: str) -> AsyncIterator[NodeAddresses | None]:
    """Start a separate process on the same database, which dies at this crash point, at the latest before the block
    ends. Yields `None` if it dies before it listens."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", PROCESS, network.database.url, REGISTRATION_KEY, network.blobs.directory,
        stdout=asyncio.subprocess.PIPE, env={**os.environ, "TIDINGS_CRASH_AT": point},
    )  # fmt: skip
    try:
        assert process.stdout is not None
        async with asyncio.timeout(TIMEOUT):
            line = await process.stdout.readline()
        http, tcp = json.loads(line) if line else ((), ())
        yield NodeAddresses(tuple(http), tuple(tcp)) if line else None
        async with asyncio.timeout(TIMEOUT):
            await process.wait()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


async def client_of(network: Network, addresses: NodeAddresses | None, number: str) -> Client:
    assert addresses is not None
    client = await Client().open(addresses, "tcp")
    await client.login(number, network.tokens[number])
    return client


POINTS = (crashpoints.AFTER_STORE_BEFORE_ACCEPTED, crashpoints.AFTER_DEVICE_ACK_BEFORE_ROW)


@pytest.mark.parametrize("point", POINTS)
async def test_copies_in_memory_of_a_killed_process_are_delivered(
    database_factory: DatabaseFactory, point: str
) -> None:
    network = Network((await database_factory("network")).settings, "tcp")
    await network.start()
    await network.register(ALICE, BOB, CAROL)
    group = await make(network, ALICE, BOB, CAROL)
    bob, alice = await network.connect(BOB), await network.connect(ALICE)
    await changes(bob, 2)
    await changes(alice, 3)
    for client in (alice, bob):
        await client.nothing_came()
    await network.stop()
    async with mortal_process(network, point) as addresses:
        bob, alice = [await client_of(network, addresses, number) for number in (BOB, ALICE)]
        group_send(alice, ALICE, group, "one", 3)
        if point == crashpoints.AFTER_DEVICE_ACK_BEFORE_ROW:
            await alice.accepted(1)
            bob.ack(*await bob.deliveries(1))
        async with asyncio.timeout(TIMEOUT):
            await bob.closed.wait()
    # Bob's copy was only in memory.
    assert await kept(network) == ["one"]
    assert (await stored(network))[1:] == ["one"]
    # The next process dies while it writes the copy to the mailbox.
    async with mortal_process(network, crashpoints.AFTER_SETTLED_PAGE) as addresses:
        assert addresses is None
    await network.start()
    assert await kept(network) == []
    alice, bob, carol = [await network.connect(number) for number in (ALICE, BOB, CAROL)]
    await changes(carol, 1)
    group_send(alice, ALICE, group, "one", 3)
    await alice.accepted(1)
    for client in (bob, carol):
        deliveries = await client.deliveries(1)
        assert ids(deliveries) == ["one"]
        client.ack(*deliveries)
        await client.nothing_came()
    await network.remove()
    assert (await stored(network), await kept(network)) == ([], [])


class BrokenCommits:
    """Fault that commits the next `left` transactions with group messages and loses their results."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.left = 0
        self.error: Exception = outages.DatabaseTimeout("no answer")
        begin, add = Database.transaction, group_messages.add
        keeping: set[int] = set()

        async def noted(connection: Connection, messages: list[group_messages.StoredGroupMessage]) -> None:
            keeping.update(message.seq for message in messages)
            await add(connection, messages)

        @contextlib.asynccontextmanager
        async def transaction(database: Database, **options: object) -> AsyncIterator[Connection]:
            keeping.clear()
            async with begin(database, **options) as connection:  # type: ignore[arg-type]
                yield connection
            if keeping and self.left:
                self.left -= 1
                raise self.error

        monkeypatch.setattr(group_messages, "add", noted)
        monkeypatch.setattr(Database, "transaction", transaction)


@pytest.fixture
async def pair_in_group(database_factory: DatabaseFactory) -> AsyncIterator[tuple[Network, str, Client, Client]]:
    network = Network((await database_factory("network")).settings, "tcp")
    await network.start()
    yield network, *await group_support.pair_in_group(network)
    await network.remove()
    assert (await stored(network), await kept(network)) == ([], [])


async def test_a_commit_with_a_lost_response_is_found_by_the_retry_and_delivered_once(
    pair_in_group: tuple[Network, str, Client, Client], monkeypatch: pytest.MonkeyPatch
) -> None:
    _, group, alice, bob = pair_in_group
    broken = BrokenCommits(monkeypatch)
    for count in (1, 2):
        broken.left = count
        sent = [group_send(alice, ALICE, group, f"{count}-{i}", 2) for i in range(3)]
        assert await alice.accepted(3) == sent
        deliveries = await bob.deliveries(3)
        assert ids(deliveries) == [f"{count}-{i}" for i in range(3)]
        bob.ack(*deliveries)
        await bob.nothing_came()
        assert broken.left < count


@pytest.mark.parametrize("comes_again", [False, True])
async def test_messages_stored_but_refused_as_overloaded_precede_later_ones(
    pair_in_group: tuple[Network, str, Client, Client], monkeypatch: pytest.MonkeyPatch, comes_again: bool
) -> None:
    _, group, alice, bob = pair_in_group
    broken = BrokenCommits(monkeypatch)
    # An error that is not retried.
    broken.left, broken.error = 1, ValueError("an answer that nobody understands")
    group_send(alice, ALICE, group, "one", 2)
    assert await refusal(alice) == device.OVERLOADED
    if comes_again:
        sent = [group_send(alice, ALICE, group, id_, 2) for id_ in ("one", "two")]
        assert await alice.accepted(2) == sent
    deliveries = await bob.deliveries(1 + comes_again)
    assert ids(deliveries) == ["one", "two"][: 1 + comes_again]
    bob.ack(*deliveries)
    await bob.nothing_came()


async def test_during_a_database_outage_a_message_is_refused_and_later_accepted(
    killable_network: tuple[Network, MariaDB], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(copies, "RETRY_SECONDS", 0.5)
    network, server = killable_network
    await network.start(embedded=True)
    group, alice, bob = await group_support.pair_in_group(network)
    await asyncio.to_thread(server.kill9)
    group_send(alice, ALICE, group, "one", 2)
    assert await refusal(alice) == device.OVERLOADED
    await asyncio.to_thread(server.start)
    group_send(alice, ALICE, group, "one", 2)
    await alice.accepted(1)
    assert ids(await bob.deliveries(1)) == ["one"]


@pytest.mark.parametrize("what", ["join", "leave"])
async def test_a_change_of_a_process_killed_before_its_response_is_made_once(
    database_factory: DatabaseFactory, what: str
) -> None:
    network = Network((await database_factory("network")).settings, "tcp")
    await network.start()
    await network.register(ALICE, BOB)
    group = await make(network, ALICE, *([BOB] if what == "leave" else []))
    code = (await done(network, "GET", ALICE, f"/{group}/invite"))["code"]
    alice = await network.connect(ALICE)
    await changes(alice, 2 if what == "leave" else 1)
    await alice.nothing_came()
    await network.stop()
    method, path, body = ("DELETE", f"/{group}", None) if what == "leave" else ("POST", "/join", {"code": code})
    async with mortal_process(network, crashpoints.AFTER_COMMIT_BEFORE_REPLY) as addresses:
        assert addresses is not None
        host, port = addresses.http
        authorization = {"Authorization": f"Bearer {network.tokens[BOB]}"}
        async with aiohttp.ClientSession(f"http://{host}:{port}") as session:
            with pytest.raises(aiohttp.ClientError):
                await session.request(method, f"/v1/groups/{BOB}{path}", json=body, headers=authorization)
    await network.start()
    await done(network, method, BOB, path, body)
    alice = await network.connect(ALICE)
    (told,) = await changes(alice, 1)
    assert (told["change"], told["numbers"]) == ("left" if what == "leave" else "joined", [BOB])
    await alice.nothing_came()
    assert (await done(network, "GET", ALICE, f"/{group}"))["epoch"] == told["epoch"]
    await network.remove()
