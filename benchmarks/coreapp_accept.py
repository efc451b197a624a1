"""CPU that the Coreapp spends on one message with its three callbacks, sessions warm.

    python -m benchmarks.coreapp_accept --database mysql --messages 5000
    python -m benchmarks.coreapp_accept --database sqlite --profile

The Coreapp runs in this process alone. The network (which accepts, delivers and reads everything at once), the webhook
and the Webapp (64 messages in flight on the link) are processes of their own. Fails when a callback is missing or when
a message costs more than `--limit` µs.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import cProfile
import io
import itertools
import json
import pstats
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httptools
import uvloop
from aiohttp import web

from coreapp.settings import Settings
from coreapp.shard.link import LinkHandler
from coreapp.shard.node import Node
from coreapp.webhook import delivery
from harness import metrics
from harness.mariadb import MariaDB
from tests.coreapp.phones import Phone
from tidings.client.http import NetworkApi
from tidings.egress import addresses
from tidings.egress.settings import OutgoingSettings
from tidings.runtime import log
from tidings.runtime.clock import SystemClock
from tidings.runtime.process_secrets import CoreappSecrets, SecretKeys
from tidings.runtime.settings import DatabaseSettings
from tidings.storage import schema
from tidings.storage.business import application_settings
from tidings.storage.database import Database
from tidings.wire import connection as wire
from tidings.wire import core
from tidings.wire import device as frames
from tidings.wire.requests import Requests

BUSINESS = "15550000000"
LINK_KEY = "key"
SECRET = "whsec_" + "QUJD" * 8


class Network:
    """Accepts, delivers and reads every message in the turn in which it comes."""

    def __init__(self, recipients: int) -> None:
        self.phones = {number: Phone(number, one_time=0) for number in numbers(recipients)}
        self._greeted: set[str] = set()
        self._accepted: list[int] = []
        self._counter = itertools.count(1)

    def opened(self, connection: wire.Connection) -> None:
        pass

    def closed(self, connection: wire.Connection, reason: str) -> None:
        pass

    def received(self, connection: wire.Connection, frame: Any) -> None:
        if isinstance(frame, frames.Send):
            if not self._accepted:
                asyncio.get_running_loop().call_soon(self._flush, connection)
            self._accepted.append(frame.n)
            if frame.to not in self._greeted:
                # An answer settles the session: from then on messages are short.
                self._greeted.add(frame.to)
                phone = self.phones[frame.to]
                phone.read(frame.kind, frame.body)
                kind, body = phone.write(b'{"type":"null"}')
                self._deliver(connection, frame.to, kind, f"in-{frame.to}", body)
            self._deliver(connection, frame.to, frames.DELIVERED, f"d-{frame.id}", b"", [frame.id])
            self._deliver(connection, frame.to, frames.READ, f"r-{frame.id}", b"", [frame.id])
        elif isinstance(frame, frames.Login):
            connection.send(frames.Ok(frame.n))
        elif isinstance(frame, frames.Check):
            connection.send(frames.Checked(frame.n, [n for n in frame.numbers if n in self.phones]))
        elif isinstance(frame, frames.Fetch):
            connection.send(frames.Bundles(frame.n, [self.phones[n].bundle() for n in frame.numbers]))
        elif isinstance(frame, frames.Ping):
            connection.send(frames.Pong())

    def _flush(self, connection: wire.Connection) -> None:
        connection.send(frames.Accepted(self._accepted))
        self._accepted = []

    def _deliver(
        self, connection: wire.Connection, sender: str, kind: str, id: str, body: bytes, refs: list[str] | None = None
    ) -> None:
        now = int(time.time() * 1000)
        connection.send(frames.Deliver(next(self._counter), BUSINESS, sender, id, kind, now, body, refs or []))


class Webhook(asyncio.Protocol):
    """Answers 200 to every request on a kept connection."""

    def __init__(self) -> None:
        self._parser = httptools.HttpRequestParser(self)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # Not an instance of `asyncio.Transport` on uvloop.
        self._transport: Any = transport

    def data_received(self, data: bytes) -> None:
        self._parser.feed_data(data)

    def on_message_complete(self) -> None:
        self._transport.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Type: text/plain\r\n\r\nok")


class Webapp:
    """Sends messages on the link, so many at a time."""

    def __init__(self) -> None:
        self.requests: Requests[Any] = Requests()
        self.connection: wire.Connection | None = None

    def opened(self, connection: wire.Connection) -> None:
        self.connection = connection

    def received(self, connection: wire.Connection, frame: Any) -> None:
        self.requests.answered(frame.n, frame)

    def closed(self, connection: wire.Connection, reason: str) -> None:
        self.requests.lost(reason)

    async def send(self, to: str) -> None:
        content = b'{"type":"text","text":{"body":"A reminder of your appointment tomorrow at ten, as agreed."}}'
        answer = await self.requests.ask(
            self.connection, lambda n: core.AcceptMessage(n, BUSINESS, to, "text", content, "0" * 32), timeout=60
        )
        assert isinstance(answer, core.Accepted), answer

    async def send_all(self, recipients: list[str], in_flight: int) -> None:
        left = iter(recipients)

        async def client() -> None:
            for number in left:
                await self.send(number)

        await asyncio.gather(*(client() for _ in range(in_flight)))


def numbers(count: int) -> list[str]:
    return [f"1555011{n:04}" for n in range(count)]


async def play_network(recipients: int) -> None:
    network = Network(recipients)
    server = await wire.listen("127.0.0.1", 0, frames.FromDevice, lambda: network)

    async def register(request: web.Request) -> web.Response:
        return web.json_response({"token": "token"}, status=201)

    app = web.Application()
    app.router.add_post("/v1/registrations", register)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    say({"tcp": server.sockets[0].getsockname()[1], "http": runner.addresses[0][1]})
    await asyncio.Event().wait()


async def play_webhook() -> None:
    server = await asyncio.get_running_loop().create_server(Webhook, "127.0.0.1", 0)
    say({"http": server.sockets[0].getsockname()[1]})
    await asyncio.Event().wait()


async def play_webapp(port: int, recipients: int, messages: int) -> None:
    webapp = Webapp()
    await wire.connect("127.0.0.1", port, core.Answer, webapp)
    await webapp.requests.ask(webapp.connection, lambda n: core.Hello(n, LINK_KEY), timeout=10)
    everyone = numbers(recipients)
    await webapp.requests.ask(webapp.connection, lambda n: core.CheckContacts(n, BUSINESS, everyone, True), timeout=60)
    await webapp.send_all(everyone, 64)
    say({"warm": True})
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.readline)
    started = time.perf_counter()
    await webapp.send_all([everyone[n % recipients] for n in range(messages)], 64)
    say({"seconds": time.perf_counter() - started})


def say(fact: dict[str, Any]) -> None:
    print(json.dumps(fact), flush=True)


class Child:
    """One of the other processes."""

    def __init__(self, *arguments: object) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.coreapp_accept", *map(str, arguments)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    async def hear(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = await asyncio.get_running_loop().run_in_executor(None, self._process.stdout.readline)
        heard: dict[str, Any] = json.loads(line)
        return heard

    def go(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()

    def end(self) -> None:
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()


@contextlib.asynccontextmanager
async def a_database(kind: str, directory: Path) -> AsyncIterator[Database]:
    server: MariaDB | None = None
    if kind == "mysql":
        server = MariaDB(flush_log=1)
        server.start()
        url = server.url("business")
    else:
        url = f"sqlite+aiosqlite:///{directory / 'business.db'}"
    database = Database(DatabaseSettings(url), "business")
    try:
        await schema.prepare(database, migrate=True)
        yield database
    finally:
        await database.close()
        if server is not None:
            server.remove()


def posted() -> int:
    """Attempts at the webhook so far."""
    return int(
        sum(
            sample.value
            for metric in delivery.REQUESTS.collect()
            for sample in metric.samples
            if sample.name.endswith("_total")
        )
    )


def commits() -> float:
    return metrics.value("tidings_db_commits_total", family="business")


async def until_posted(count: int) -> None:
    async with asyncio.timeout(120):
        while posted() < count:  # noqa: ASYNC110
            await asyncio.sleep(0.02)


async def measure(options: argparse.Namespace) -> dict[str, float]:
    profile = cProfile.Profile()
    with tempfile.TemporaryDirectory() as folder:
        async with a_database(options.database, Path(folder)) as database:
            network = Child("network", options.recipients)
            webhook = Child("webhook")
            at_network, at_webhook = await network.hear(), await webhook.hear()
            async with database.transaction() as connection:
                await application_settings.change_settings(
                    connection,
                    BUSINESS,
                    {
                        "webhooks": {
                            "url": f"http://127.0.0.1:{at_webhook['http']}/",
                            "max_concurrent_requests": options.concurrency,
                            "message": {"sent": True},
                        },
                        "sent_status": True,
                    },
                )
            settings = Settings(
                data_dir=Path(folder),
                database=database.settings,
                secrets=CoreappSecrets(
                    link_key=LINK_KEY,
                    registration_key="registration",
                    master_key=SecretKeys.of(b"m" * 32),
                    settings_key=SecretKeys.of(b"s" * 32),
                    webhook_secret=SECRET,
                ),
                embedded=True,
                node="bench",
                account=BUSINESS,
                link_address=("127.0.0.1", 0),
                advertised_host="127.0.0.1",
                metrics_address=("127.0.0.1", 0),
                network_tcp=("127.0.0.1", at_network["tcp"]),
                network_http=f"http://127.0.0.1:{at_network['http']}",
                shards=1,
                lease_seconds=30.0,
                heartbeat_seconds=5.0,
                job_queue_limit=20_000,
                callback_queue_limit=100_000,
                webhook_timeout=15.0,
                accept_any_2xx=False,
                require_pq=False,
                media_dir=Path(folder) / "media",
                status_delay=options.status_delay,
                outgoing_webhooks=OutgoingSettings(addresses.LOOPBACK),
                reengagement_window=False,
            )
            network_api = NetworkApi(settings.network_http)
            node = Node(settings, database, network_api, clock=SystemClock(), address=lambda: "127.0.0.1:0")
            server = await wire.listen(
                "127.0.0.1",
                0,
                core.Question,
                lambda: LinkHandler(LINK_KEY, "bench", lambda: node.shard, requests=node.desk),
            )
            stop = asyncio.Event()
            running = asyncio.create_task(node.run(stop))
            await node.owned.wait()
            webapp = Child("webapp", server.sockets[0].getsockname()[1], options.recipients, options.messages)
            try:
                await webapp.hear()
                await until_posted(3 * options.recipients)
                before, commits_before, wall = time.process_time(), commits(), time.perf_counter()
                if options.profile:
                    profile.enable()
                webapp.go()
                accepted = await webapp.hear()
                await until_posted(3 * (options.recipients + options.messages))
                if options.profile:
                    profile.disable()
                cpu, wall = time.process_time() - before, time.perf_counter() - wall
                made = commits() - commits_before
                left = (len(node.shard.webhook.queue) if node.shard else -1, posted())
            finally:
                stop.set()
                await running
                await network_api.close()
                server.close()
                for child in (webapp, network, webhook):
                    child.end()
    assert left == (0, 3 * (options.recipients + options.messages)), left
    if options.profile:
        text = io.StringIO()
        pstats.Stats(profile, stream=text).sort_stats(options.sort).print_stats(options.top)
        print(text.getvalue())
    return {
        "cpu_us_per_message": cpu / options.messages * 1e6,
        "messages_per_second": options.messages / wall,
        "accepted_per_second": options.messages / accepted["seconds"],
        "commits_per_message": made / options.messages,
        "cpu_share": cpu / wall,
    }


def main() -> None:
    match sys.argv[1:]:
        case ["network", recipients]:
            return uvloop.run(play_network(int(recipients)))
        case ["webhook"]:
            return uvloop.run(play_webhook())
        case ["webapp", *numbers]:
            return uvloop.run(play_webapp(*map(int, numbers)))
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--database", choices=("mysql", "sqlite"), default="mysql")
    parser.add_argument("--messages", type=int, default=5000)
    parser.add_argument("--recipients", type=int, default=200)
    parser.add_argument("--concurrency", type=int, default=24, help="POSTs in flight")
    parser.add_argument("--status-delay", type=float, default=0.0, help="seconds; 0 as in the other benchmarks")
    parser.add_argument("--limit", type=float, default=0.0, help="fail above so many µs a message; 0 is no limit")
    parser.add_argument("--profile", action="store_true")
    parser.add_argument("--sort", default="tottime")
    parser.add_argument("--top", type=int, default=45)
    options = parser.parse_args()
    log.configure("bench", level="WARNING")
    result = uvloop.run(measure(options))
    print(json.dumps({name: round(value, 3) for name, value in result.items()} | {"database": options.database}))
    if options.limit and result["cpu_us_per_message"] > options.limit:
        sys.exit(f"a message costs more than {options.limit} µs")


if __name__ == "__main__":
    main()
