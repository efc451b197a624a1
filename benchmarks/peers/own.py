"""Tidings' own queues alone, in processes that carry out the same requests as the peers: jobs, or callbacks.

A job is a row that is committed before its client continues. It is passed to a worker from memory as soon as it is on
disk, and deleted with the next commit after the work. `coreapp` treats a message in the same way, but for the message
itself, its encryption and the network. Only the owner of a shard writes its jobs, so that a second process with the
clients calls the owner over a connection, as a Webapp calls a Coreapp, and is answered after the commit. A webhook is
the real callback queue, with its deliveries and signatures.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence

import msgspec
import uvloop

from benchmarks.peers import load
from coreapp.callback_bodies import BodySealer
from coreapp.journal.callback_rows import Seal
from coreapp.journal.change import Change
from coreapp.journal.journal import Journal
from coreapp.webhook import bodies, retry
from coreapp.webhook.delivery import Deliveries
from coreapp.webhook.poster import Poster
from coreapp.webhook.queue import CallbackQueue
from coreapp.webhook.target import CallbackTarget
from tidings import e2ee
from tidings.aio.clock import SystemClock
from tidings.egress import addresses
from tidings.egress.guard import EgressGuard
from tidings.egress.settings import OutgoingSettings
from tidings.installation.settings import DatabaseSettings
from tidings.storage import schema
from tidings.storage.business import callbacks, jobs, shards
from tidings.storage.business.callbacks import Callback
from tidings.storage.business.jobs import Job, JobForm
from tidings.storage.business.messages import Status
from tidings.storage.database import Database
from tidings.wire import connection
from tidings.wire.connection import Connection
from tidings.wire.requests import Requests

ACCOUNT, PEER = "15550000000", "15550110001"
WORKERS = 64
# Posts in flight: `max_concurrent_requests` of the On-Premises API.
POSTS = 24
# Key that the webhook verifies signatures with.
SIGNING_KEY = b"0123456789abcdef0123456789abcdef"


async def open_journal(database: Database, seal: Seal) -> Journal:
    """Create the tables, claim the only shard, and return its journal."""
    await schema.create_database(database.settings)
    await schema.upgrade(database)
    async with database.transaction() as connection:
        await shards.create_shards(connection, 1)
        lease = await shards.claim(connection, 0, owner="bench", address="bench:1", heartbeat_timeout=30)
    assert lease is not None
    return Journal(database, lease, last_seq=0, seal=seal)


class Enqueue(msgspec.Struct, tag="enqueue"):
    """Request to the process with the workers."""

    n: int
    number: int
    body: str


class Enqueued(msgspec.Struct, tag="enqueued"):
    """Response after the commit."""

    n: int


class OwnerLink:
    """Connection of the clients' process to the workers' process."""

    def __init__(self, enqueue: Callable[[int, str], Awaitable[object]]) -> None:
        self._enqueue = enqueue
        self._tasks: set[asyncio.Task[None]] = set()

    def opened(self, connection: Connection) -> None:
        pass

    def received(self, connection: Connection, frame: Enqueue) -> None:
        task = asyncio.create_task(self._response(connection, frame))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def closed(self, connection: Connection, reason: str) -> None:
        pass

    async def _response(self, connection: Connection, frame: Enqueue) -> None:
        await self._enqueue(frame.number, frame.body)
        connection.send(Enqueued(frame.n))


class ClientLink:
    """Connection to the workers' process."""

    def __init__(self) -> None:
        self.requests: Requests[Enqueued] = Requests()

    def opened(self, connection: Connection) -> None:
        pass

    def received(self, connection: Connection, frame: Enqueued) -> None:
        self.requests.resolve(frame.n, frame)

    def closed(self, connection: Connection, reason: str) -> None:
        self.requests.lost(reason)


def _link_address() -> tuple[str, int]:
    host, _, port = os.environ["PEER_LINK"].rpartition(":")
    return host, int(port)


async def run_clients() -> None:
    """Run clients that enqueue jobs in another process."""
    run, link = load.JobRun(), ClientLink()
    to_owner = await connection.connect(*_link_address(), Enqueued, link)

    async def enqueue(number: int, body: str) -> None:
        await link.requests.call(to_owner, lambda n: Enqueue(n, number, body), timeout=load.TIMEOUT)

    async def left() -> int:
        return 0

    await load.serve_requests(lambda request: run.drive(request, enqueue, left))
    to_owner.close("the clients have ended")


async def run_jobs(database: Database) -> None:
    """Run jobs whose work is to be recorded."""
    run, journal = load.JobRun(), await open_journal(database, _as_they_are)
    ready: asyncio.Queue[Job] = asyncio.Queue()

    async def work() -> None:
        while True:
            job = await ready.get()
            run.work(int(job.id))
            journal.put(Change(ACCOUNT, finished_jobs=(job.id,)))

    workers = [asyncio.create_task(work()) for _ in range(WORKERS)]

    async def enqueue(number: int, body: str) -> None:
        job = Job(str(number), 0, ACCOUNT, PEER, JobForm.ENCRYPTED, "message", body.encode(), number)
        await journal.write(Change(ACCOUNT, enqueued_jobs=(job,)))
        ready.put_nowait(job)

    async def left() -> int:
        return await database.query(jobs.count)

    server = None
    if load.role() == load.WORK:
        server = await connection.listen(*_link_address(), Enqueue, lambda: OwnerLink(enqueue))
    await load.serve_requests(lambda request: run.drive(request, enqueue, left))
    if server is not None:
        server.close()
    for worker in workers:
        worker.cancel()
    await journal.close()


class RecordingPoster(Poster):
    """Poster that records accepted posts, by the number in the id of their message."""

    run: load.JobRun

    async def post(self, url: str, headers: Mapping[str, str], body: bytes, excerpt: bytearray | None = None) -> int:
        status = await super().post(url, headers, body, excerpt)
        if status == 200:
            self.run.work(int(body.partition(b'"id":"m')[2].partition(b'"')[0]))
        return status


async def run_webhooks(database: Database, url: str) -> None:
    """Run callbacks: committed one by one, posted to a webhook, and deleted with the next commit."""
    sealer = BodySealer(e2ee.Sealer(e2ee.Keyring.from_master(e2ee.generate_data_key(), 1)))
    run, journal, clock = load.JobRun(), await open_journal(database, sealer.seal), SystemClock()

    async def read_nothing(after: int, limit: int) -> Sequence[Callback]:
        return []

    queue = CallbackQueue(100_000, clock, read_nothing)
    journal.on_callbacks(queue.offer)
    target = CallbackTarget(url, POSTS, retry.Policy(), (SIGNING_KEY,))
    poster = RecordingPoster(EgressGuard(OutgoingSettings(addresses.LOOPBACK)), timeout=10.0)
    poster.run = run
    deliveries = Deliveries(queue, journal, lambda: target, poster=poster, clock=clock)
    await queue.start(0)
    stop = asyncio.Event()
    delivering = asyncio.create_task(deliveries.run(stop))

    async def enqueue(number: int, _body: str) -> None:
        now = clock.now()
        body = bodies.status(f"m{number}", PEER, Status.SENT, int(now))
        callback = Callback(0, 0, ACCOUNT, f"m{number}", "status_change", body, int(now * 1000))
        await journal.write(Change(ACCOUNT, new_callbacks=(callback,)))

    async def left() -> int:
        return await database.query(lambda connection: callbacks.count_pending(connection, 0))

    await load.serve_requests(lambda request: run.drive(request, enqueue, left))
    stop.set()
    await delivering
    await queue.close()
    await journal.close()


def _as_they_are(found: Sequence[Callback]) -> Sequence[bytes]:
    return [callback.body for callback in found]


async def main() -> None:
    what, url, *webhook = sys.argv[1:]
    if load.role() == load.ENQUEUE:
        await run_clients()
        return
    database = Database(DatabaseSettings(url), "business")
    try:
        if what == "webhooks":
            await run_webhooks(database, webhook[0])
        else:
            await run_jobs(database)
    finally:
        await database.close()


if __name__ == "__main__":
    uvloop.run(main())
