"""PgQueuer: jobs in PostgreSQL, a worker in the same process."""

from __future__ import annotations

import asyncio
import datetime
import json

import asyncpg
import uvloop
from pgqueuer import PgQueuer
from pgqueuer.db import AsyncpgDriver, AsyncpgPoolDriver
from pgqueuer.models import Job
from pgqueuer.queries import Queries

from benchmarks.peers import load

# Connections of the clients; jobs fetched at a time.
CONNECTIONS, BATCH = 32, 100


async def main() -> None:
    run = load.JobRun()
    pool = await asyncpg.create_pool(load.store(), min_size=CONNECTIONS, max_size=CONNECTIONS)
    queries = Queries(AsyncpgPoolDriver(pool))
    if load.is_worker():
        await queries.install()
    queue = PgQueuer(AsyncpgDriver(await asyncpg.connect(load.store())))

    @queue.entrypoint("work")
    async def work(job: Job) -> None:
        assert job.payload is not None
        run.work(json.loads(job.payload)["number"])

    timeout = datetime.timedelta(seconds=0.1)
    running = queue.run(dequeue_timeout=timeout, batch_size=BATCH) if load.is_worker() else asyncio.sleep(0)
    working = asyncio.create_task(running)

    async def enqueue(number: int, body: str) -> None:
        await queries.enqueue("work", json.dumps({"number": number, "body": body}).encode())

    async def left() -> int:
        return int(await pool.fetchval("SELECT count(*) FROM pgqueuer"))

    await load.serve_requests(lambda request: run.drive(request, enqueue, left))
    working.cancel()
    await asyncio.gather(working, return_exceptions=True)


if __name__ == "__main__":
    uvloop.run(main())
