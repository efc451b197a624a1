"""Tidings' own queues alone, in a process that obeys the same orders as the peers: jobs, or callbacks.

A job is a row that is committed before its client continues. It is passed to a worker from memory as soon as it is on
disk, and deleted with the next commit after the work. `coreapp` treats a message in the same way, but for the message
itself, its encryption and the network. A webhook is the real callback queue, with its deliveries and signatures.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Mapping, Sequence

import uvloop

from benchmarks.peers import load
from coreapp.callback_bodies import BodySealer
from coreapp.journal import Change, Journal, Seal
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

    await load.obey(lambda order: run.drive(order, enqueue, left))
    for worker in workers:
        worker.cancel()
    await journal.close()


class NotedPoster(Poster):
    """Poster that records accepted posts, by the number in the id of their message."""

    run: load.JobRun

    async def post(self, url: str, headers: Mapping[str, str], body: bytes) -> int:
        status = await super().post(url, headers, body)
        if status == 200:
            self.run.work(int(body.partition(b'"id":"m')[2].partition(b'"')[0]))
        return status


async def run_webhooks(database: Database, url: str) -> None:
    """Run callbacks: committed one by one, posted to a webhook, and deleted with the next commit."""
    sealer = BodySealer(e2ee.Sealer(e2ee.Keyring.from_master(e2ee.generate_data_key(), 1)))
    run, journal, clock = load.JobRun(), await open_journal(database, sealer.seal), SystemClock()

    async def none_stored(after: int, limit: int) -> Sequence[Callback]:
        return []

    queue = CallbackQueue(100_000, clock, none_stored)
    journal.on_callbacks(queue.offer)
    target = CallbackTarget(url, POSTS, retry.Policy(), (SIGNING_KEY,))
    poster = NotedPoster(EgressGuard(OutgoingSettings(addresses.LOOPBACK)), timeout=10.0)
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

    await load.obey(lambda order: run.drive(order, enqueue, left))
    stop.set()
    await delivering
    await queue.close()
    await journal.close()


def _as_they_are(found: Sequence[Callback]) -> Sequence[bytes]:
    return [callback.body for callback in found]


async def main() -> None:
    what, url, *webhook = sys.argv[1:]
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
