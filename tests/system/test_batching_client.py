"""Client that stores ids in batches: it knows a message seconds after the 201, and ignores earlier statuses."""

from __future__ import annotations

import asyncio
import collections
import json
import sqlite3
import statistics
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from aiohttp import web

from harness import client, measure
from harness.client import Business, Connection, Sent
from harness.installation import Installation
from tests.web_server import serving

pytestmark = pytest.mark.whole_system

RATE = 200.0
ROBOTS = 20
STORED_AFTER = 2.5  # seconds from the 201; longer than a status takes on a busy machine
BATCH = 0.05  # seconds between two transactions
DELAY = 5.0  # seconds; longer than a callback waits on a busy machine, and twice `STORED_AFTER`
READ = [f"1555011{n:04}" for n in range(ROBOTS)]
ECHO = [f"1555014{n:04}" for n in range(ROBOTS)]


class BatchingClient(Business):
    """Client whose messages are rows of its database. Callbacks about unknown messages are answered with 200 and
    ignored."""

    def __init__(self, port: int, path: Path) -> None:
        super().__init__(port)
        self._database = sqlite3.connect(path)
        self._database.executescript(
            "PRAGMA synchronous = OFF; CREATE TABLE IF NOT EXISTS messages (id TEXT PRIMARY KEY, status TEXT NOT NULL)"
        )
        self._unstored: collections.deque[tuple[float, str]] = collections.deque()
        self._sent: dict[str, float] = {}
        self._responded_at: dict[str, float] = {}
        self._arrived = asyncio.Event()
        self.early = 0
        self.statuses = 0
        self.response_took: list[float] = []
        self.status_took: list[float] = []
        self.reply_took: list[float] = []
        # At the end of the load: number of held callbacks, and age of the queue in seconds.
        self.held = self.age = 0.0

    async def send(self, connection: Connection, number: str, text: str) -> Sent:
        self._sent[text] = time.monotonic()
        sent = await super().send(connection, number, text)
        assert sent.request.accepted, sent
        now = self._responded_at[sent.request.message_id] = time.monotonic()
        self._unstored.append((now, sent.request.message_id))
        return sent

    async def store(self) -> None:
        """Store ids in one transaction after another."""
        while True:
            self._store_since(STORED_AFTER)
            await asyncio.sleep(BATCH)

    def _store_since(self, seconds: float) -> None:
        due = []
        while self._unstored and self._unstored[0][0] <= time.monotonic() - seconds:
            due.append((self._unstored.popleft()[1],))
        with self._database:
            self._database.executemany("INSERT INTO messages VALUES (?, 'wired')", due)

    async def take(self, request: web.Request) -> web.Response:
        """Handle a callback."""
        # Ids that this process was too busy to store must not distort the result.
        self._store_since(STORED_AFTER)
        body = json.loads(await request.read())
        now = time.monotonic()
        for status in body.get("statuses", ()):
            with self._database:
                update = "UPDATE messages SET status = ? WHERE id = ?"
                self.early += not self._database.execute(update, (status["status"], status["id"])).rowcount
            self.statuses += 1
            if status["status"] == "sent" and status["id"] in self._responded_at:
                self.status_took.append(now - self._responded_at[status["id"]])
        for message in body.get("messages", ()):
            self.reply_took.append(now - self._sent[message["text"]["body"]])
        self._arrived.set()
        return web.Response()

    async def until_received(self, statuses: int, replies: int) -> None:
        """Wait until this number of statuses and replies has arrived."""
        async with asyncio.timeout(60):
            while self.statuses < statuses or len(self.reply_took) < replies:
                self._arrived.clear()
                await self._arrived.wait()

    def unread(self) -> int:
        """Return the number of messages whose last status is not read, as far as this client knows."""
        self._store_since(0.0)
        (count,) = self._database.execute("SELECT count(*) FROM messages WHERE status <> 'read'").fetchone()
        return int(count)

    def close(self) -> None:
        self._database.close()


@pytest.fixture
async def installation(tmp_path: Path) -> AsyncIterator[Installation]:
    """Installation that is not started."""
    environment = {"TIDINGS_MESSAGES_RATE": "0", "TIDINGS_CONTACTS_RATE": "0", "TIDINGS_ROBOTS_KINDS": "11,14"}
    environment["TIDINGS_ROBOTS_PER_KIND"] = str(ROBOTS)
    async with Installation(tmp_path, None, environment) as prepared:
        yield prepared


class Webhook:
    """One address for the successive clients of a test."""

    def __init__(self) -> None:
        self.url = ""
        self.client: BatchingClient | None = None

    async def take(self, request: web.Request) -> web.Response:
        assert self.client is not None
        return await self.client.take(request)


@pytest.fixture
async def webhook() -> AsyncIterator[Webhook]:
    webhook = Webhook()
    app = web.Application()
    app.router.add_post("/", webhook.take)
    async with serving(app) as url:
        webhook.url = f"{url}/"
        yield webhook


async def play(installation: Installation, webhook: Webhook, path: Path, messages: int) -> BatchingClient:
    """Send messages at the rate until all their callbacks have arrived. Every tenth message is echoed."""
    business = webhook.client = BatchingClient(installation.api_port, path)
    storing = asyncio.create_task(business.store())
    try:
        await business.log_in()
        await business.set_webhook(webhook.url)
        await business.check_contacts([*READ, *ECHO])
        work = [((READ if n % 10 else ECHO)[n // 10 % ROBOTS], f"{path.name}: {n}") for n in range(messages)]
        load = await client.open_loop(business, work, RATE)
        metrics = (await asyncio.to_thread(installation.metrics))["coreapp"]
        business.held = measure.metric(metrics, "tidings_callbacks_held")
        business.age = measure.metric(metrics, "tidings_callback_age_seconds")
        business.response_took = [sent.took for sent in load.sent]
        await business.until_received(3 * messages, messages // 10)
    finally:
        storing.cancel()
    return business


async def test_a_client_that_stores_ids_in_batches_sees_every_status(
    installation: Installation, webhook: Webhook, tmp_path: Path
) -> None:
    await installation.start(extra={"TIDINGS_STATUS_DELAY_MS": f"{DELAY * 1000:.0f}"})
    business = await play(installation, webhook, tmp_path / "delayed.sqlite3", 800)
    assert business.early == 0
    assert business.unread() == 0
    assert business.held > 0
    # The delay is part of the latency of first statuses, and of no other.
    assert statistics.median(business.status_took) > 0.9 * DELAY
    for took in (business.response_took, business.reply_took, [business.age]):
        assert statistics.median(took) < DELAY
    business.close()

    # Comparison without the delay.
    coreapp = installation.processes["coreapp"]
    await coreapp.stop()
    await coreapp.start({"TIDINGS_STATUS_DELAY_MS": "0"})
    business = await play(installation, webhook, tmp_path / "at once.sqlite3", 100)
    assert business.early > 100
    assert business.unread() > 50
    assert business.held == 0
    business.close()
