"""Idempotency keys on real processes: each key makes one message, whatever crashes and however often it is sent."""

from __future__ import annotations

import asyncio
import collections
import os
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from pathlib import Path

import msgspec
import pytest

from harness import ledger, polling
from harness.client import Business
from harness.http_connection import NoResponse
from harness.installation import Installation
from harness.processes import Process
from tidings.aio import crashpoints

pytestmark = pytest.mark.whole_system

READER = "15550110001"
SECONDS = 60.0
CLIENTS, KEYS = 10, 60  # of each round
POINTS = (crashpoints.AFTER_SEAL_BEFORE_COMMIT, crashpoints.AFTER_COMMIT_BEFORE_REPLY)
OTHERS = 20_000  # keys of earlier requests, so that reading all of them takes about a second


@pytest.fixture
async def installation(
    database_engine: str, tmp_path: Path, request: pytest.FixtureRequest
) -> AsyncIterator[Installation]:
    mariadb = request.getfixturevalue("installation_mariadb") if database_engine == "mariadb" else None
    environment = {"TIDINGS_ROBOTS_PER_KIND": "2", "TIDINGS_LEASE_SECONDS": "3"}
    async with Installation(tmp_path, mariadb, environment) as prepared:
        yield prepared


class Client:
    """Client that sends one text under each key. Counts the requests with response 201 in `created`."""

    def __init__(self, business: Business) -> None:
        self._business = business
        self.created = 0

    async def post(self, key: str) -> tuple[int, str]:
        """Send one request. Returns status and message id; status 0 without a response."""
        body = msgspec.json.encode({"to": READER, "type": "text", "text": {"body": key}})
        try:
            connection = await self._business.connect()
            try:
                status, raw = await connection.request(self._business.request("POST", "/v1/messages", body, key=key))
            finally:
                connection.close()
        except NoResponse:
            return 0, ""
        if status != 201:
            return status, ""
        self.created += 1
        return status, msgspec.json.decode(raw)["messages"][0]["id"]

    async def insist(self, keys: Sequence[str]) -> Mapping[str, str]:
        """Repeat the request of each key until it is accepted, with `CLIENTS` clients. Returns the ids by key."""
        found: dict[str, str] = {}
        queue = iter(keys)

        async def work() -> None:
            for key in queue:

                async def is_accepted(key: str = key) -> bool:
                    status, found[key] = await self.post(key)
                    assert status in (0, 201, 409, 429, 500, 503), status
                    return status == 201

                await polling.until(is_accepted, seconds=SECONDS)

        await asyncio.gather(*(work() for _ in range(CLIENTS)))
        return found


def insert_others() -> Iterable[str]:
    """Yield statements that store the keys of earlier requests."""
    for _ in range(OTHERS // 1_000):
        rows = (
            f"('15550000000', 'messages', x'{os.urandom(32).hex()}', x'{bytes(32).hex()}', 'x', 1)"
            for _ in range(1_000)
        )
        columns = "account, resource, key_hash, fingerprint, answer, created_at"
        yield f"INSERT INTO idempotency_keys ({columns}) VALUES {', '.join(rows)}"


async def opened(installation: Installation) -> Client:
    await installation.start()
    business = await installation.business()
    await business.check_contacts([READER])
    return Client(business)


async def test_50_concurrent_requests_with_one_key_create_one_message(
    installation: Installation,
) -> None:
    client = await opened(installation)
    responses = await asyncio.gather(*(client.post("k1") for _ in range(50)))
    assert {status for status, _ in responses} <= {201, 409}
    (message_id,) = {id for status, id in responses if status == 201}
    assert (await client.post("k1")) == (201, message_id)
    # A null message, which completes a key exchange, has a row too.
    sql = "SELECT id FROM messages WHERE kind = 'text'"
    rows = await asyncio.to_thread(installation.read_rows, "business", sql)
    assert [row[0] for row in rows] == [message_id]


async def test_each_key_creates_one_message_despite_crashes(installation: Installation) -> None:
    client = await opened(installation)
    await asyncio.to_thread(installation.change, "business", list(insert_others()))
    coreapp = installation.processes["coreapp"]
    made: dict[str, str] = {}
    for point in POINTS:
        await coreapp.stop()
        await coreapp.start({"TIDINGS_CRASH_AT": f"{point}:20"})
        made |= await _send_through(client, coreapp, point)
    for number in range(2):
        made |= await _send_through(client, coreapp, f"kill {number}", kill=True)
    # Each key is sent again after the table was read.
    assert await client.insist(list(made)) == made
    assert len(set(made.values())) == len(made) == KEYS * 4

    def shown() -> collections.Counter[str]:
        return collections.Counter(line.digest for line in installation.list_shown())

    digests = [ledger.digest(key) for key in made]
    await polling.until(lambda: set(digests) <= shown().keys(), seconds=SECONDS)
    assert shown() == collections.Counter(digests)


async def _send_through(client: Client, coreapp: Process, name: str, *, kill: bool = False) -> Mapping[str, str]:
    """Send under fresh keys while the Coreapp crashes and restarts, then repeat every key at once.

    Returns the ids by key.
    """
    keys = [f"{name} {n}".replace(" ", "-") for n in range(KEYS)]
    created = client.created
    sending = asyncio.create_task(client.insist(keys))
    async with asyncio.timeout(SECONDS):
        if kill:
            await polling.until(lambda: client.created >= created + KEYS // 3, seconds=SECONDS, pause=0.005)
            await coreapp.kill9()
        else:
            await coreapp.wait()
    await coreapp.start()
    made = await sending
    assert await client.insist(keys) == made
    return made
