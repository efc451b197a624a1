"""arq: jobs in Redis, a worker in the same process."""

from __future__ import annotations

import asyncio
from typing import Any

import arq
import uvloop
from arq.connections import RedisSettings
from arq.constants import default_queue_name
from arq.worker import func

from benchmarks.peers import load

WORKERS = 64
# Seconds between polls for jobs; 0.5 by default.
POLL = 0.005


async def main() -> None:
    run = load.JobRun()
    settings = RedisSettings.from_dsn(load.store())
    pool = await arq.create_pool(settings)

    async def work(_context: Any, number: int, body: str) -> None:
        run.work(number)

    worker = arq.Worker(
        functions=[func(work, name="work", keep_result=0)],
        redis_pool=await arq.create_pool(settings),
        max_jobs=WORKERS,
        poll_delay=POLL,
        keep_result=0,
        handle_signals=False,
    )
    working = asyncio.create_task(worker.async_run() if load.is_worker() else asyncio.sleep(0))

    async def enqueue(number: int, body: str) -> None:
        await pool.enqueue_job("work", number, body)

    async def left() -> int:
        return int(await pool.zcard(default_queue_name))

    await load.serve_requests(lambda request: run.drive(request, enqueue, left))
    working.cancel()
    await asyncio.gather(working, return_exceptions=True)


if __name__ == "__main__":
    uvloop.run(main())
