"""saq: jobs in Redis, a worker in the same process."""

from __future__ import annotations

import asyncio
from typing import Any

import saq
import uvloop
from saq.queue.redis import RedisQueue

from benchmarks.peers import load

WORKERS = 64


async def main() -> None:
    run = load.JobRun()
    queue: Any = RedisQueue.from_url(load.store(), name="jobs")
    await queue.connect()

    async def work(_context: Any, *, number: int, body: str) -> None:
        run.work(number)

    worker: Any = saq.Worker(queue, [("work", work)], concurrency=WORKERS)
    working = asyncio.create_task(worker.start() if load.is_worker() else asyncio.sleep(0))

    async def enqueue(number: int, body: str) -> None:
        # The result is not stored, since it is not read.
        await queue.enqueue("work", number=number, body=body, ttl=-1)

    async def left() -> int:
        return int(await queue.count("incomplete"))

    await load.serve_requests(lambda request: run.drive(request, enqueue, left))
    working.cancel()
    await asyncio.gather(working, return_exceptions=True)


if __name__ == "__main__":
    uvloop.run(main())
