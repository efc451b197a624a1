"""Procrastinate: jobs in PostgreSQL, a worker in the same process."""

from __future__ import annotations

import asyncio

import procrastinate
import uvloop

from benchmarks.peers import load

# Connections; concurrent jobs.
CONNECTIONS, WORKERS = 32, 64
# Seconds between polls for jobs without a notification; 5 by default.
POLL = 0.05


async def main() -> None:
    run = load.JobRun()
    connector = procrastinate.PsycopgConnector(conninfo=load.store(), min_size=4, max_size=CONNECTIONS)
    app = procrastinate.App(connector=connector)

    @app.task(name="work")
    async def work(number: int, body: str) -> None:
        run.work(number)

    async with app.open_async():
        working = asyncio.create_task(asyncio.sleep(0))
        if load.is_worker():
            await app.schema_manager.apply_schema_async()
            working = asyncio.create_task(
                app.run_worker_async(
                    concurrency=WORKERS,
                    install_signal_handlers=False,
                    fetch_job_polling_interval=0.05,
                    delete_jobs="always",
                )
            )

        async def enqueue(number: int, body: str) -> None:
            await work.defer_async(number=number, body=body)

        async def left() -> int:
            row = await connector.execute_query_one_async("SELECT count(*) AS left FROM procrastinate_jobs")
            return int(row["left"])

        await load.serve_requests(lambda request: run.drive(request, enqueue, left))
        working.cancel()
        await asyncio.gather(working, return_exceptions=True)


if __name__ == "__main__":
    uvloop.run(main())
