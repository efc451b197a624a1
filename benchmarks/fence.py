"""Compare commits of a journal whose fence reads its lease under a share lock with those whose fence writes it.

    python -m benchmarks.fence --rounds 10 --seconds 2

Runs on a private MariaDB that commits to disk. Each round measures both fences, one after the other, for each batch
size. A batch has messages with their jobs, sessions and callbacks, and finishes those of the batch before.
"""

from __future__ import annotations

import argparse
import itertools
import statistics
import time
from collections.abc import Awaitable, Callable, Sequence

import psutil
import sqlalchemy as sa
import uvloop

from coreapp.journal.change import Change
from coreapp.journal.journal import Journal
from harness.mariadb import MariaDB
from tidings.installation.settings import DatabaseSettings
from tidings.storage import schema
from tidings.storage.business import callbacks, jobs, messages, sessions, shards
from tidings.storage.database import Connection, Database

ACCOUNT = "15550000000"
SIZES = (1, 20, 200)  # messages per batch

Fence = Callable[[Connection, shards.Lease], Awaitable[None]]

_SHARED = (
    sa.select(shards.table.c.epoch)
    .where(shards.table.c.shard == sa.bindparam("of_shard"), shards.table.c.epoch == sa.bindparam("under_epoch"))
    .with_for_update(read=True)
)


async def read_fence(connection: Connection, lease: shards.Lease) -> None:
    """Fence as it was when there was one database node: reads the lease under a share lock."""
    found = await connection.execute(_SHARED, {"of_shard": lease.shard, "under_epoch": lease.epoch})
    if found.first() is None:
        raise shards.LeaseLost(f"shard {lease.shard}")


class Load:
    """Sequence of batches of one size."""

    def __init__(self, size: int) -> None:
        self.size = size
        self._numbers = itertools.count(1)
        self._before: list[str] = []
        self._callbacks: list[callbacks.Callback] = []

    def change(self) -> Change:
        """Return the next batch."""
        ids = [f"{self.size}-{next(self._numbers)}" for _ in range(self.size)]
        made = [callbacks.Callback(0, 0, ACCOUNT, id_, "status_change", b"x" * 400, 1) for id_ in ids]
        change = Change(
            ACCOUNT,
            new_messages=[messages.MessageRow(id_, ACCOUNT, 0, "15550110001", "text", 0, 1, "") for id_ in ids],
            enqueued_jobs=[jobs.Job(id_, 0, ACCOUNT, "15550110001", 0, "", b"x" * 400, 1) for id_ in ids],
            whole_sessions=[sessions.SealedSession(ACCOUNT, str(n), b"s" * 300, b"r" * 300) for n in range(self.size)],
            statuses=dict.fromkeys(self._before, messages.Status.READ),
            finished_jobs=self._before,
            finished_callbacks=[callback.seq for callback in self._callbacks],
            new_callbacks=made,
        )
        self._before, self._callbacks = ids, made
        return change


def _bodies(found: Sequence[callbacks.Callback]) -> Sequence[bytes]:
    return [callback.body for callback in found]


async def measure(journal: Journal, load: Load, fence: Fence, server: psutil.Process, seconds: float) -> list[float]:
    """Return for one commit: wall time, own CPU and the server's CPU, each in microseconds."""
    shards.fence = fence  # type: ignore[assignment]
    count, of_server = 0, sum(server.cpu_times()[:2])
    began, cpu = time.perf_counter(), time.process_time()
    while time.perf_counter() < began + seconds:
        await journal.write(load.change())
        count += 1
    took = [time.perf_counter() - began, time.process_time() - cpu, sum(server.cpu_times()[:2]) - of_server]
    return [value / count * 1e6 for value in took]


async def run(database: Database, pid: int, *, rounds: int, seconds: float) -> None:
    """Measure, and print a line for each batch size."""
    write_fence = shards.fence
    await schema.create_database(database.settings)
    await schema.upgrade(database)
    async with database.transaction() as connection:
        await shards.create_shards(connection, 1)
        lease = await shards.claim(connection, 0, owner="me", address="a:1", heartbeat_timeout=30)
    assert lease is not None
    journal = Journal(database, lease, last_seq=0, seal=_bodies)
    loads = {size: Load(size) for size in SIZES}
    found: dict[tuple[int, bool], list[list[float]]] = {}
    server = psutil.Process(pid)
    for number in range(rounds + 1):
        for size, load in loads.items():
            for writes in (number % 2 == 0, number % 2 == 1):
                figures = await measure(journal, load, write_fence if writes else read_fence, server, seconds)
                if number:
                    found.setdefault((size, writes), []).append(figures)
    await journal.close()
    print("messages a commit | reads: µs, own CPU, server CPU | writes | median of writes/reads: time, server CPU")
    for size in SIZES:
        sides = [[statistics.median(column) for column in zip(*found[size, w], strict=True)] for w in (False, True)]
        pairs = list(zip(found[size, True], found[size, False], strict=True))
        slower = statistics.median(after[0] / before[0] for after, before in pairs)
        busier = statistics.median((after[1] + after[2]) / (before[1] + before[2]) for after, before in pairs)
        cells = [" ".join(f"{value:.0f}" for value in side) for side in sides]
        print(f"{size} | {cells[0]} | {cells[1]} | {slower:.3f} {busier:.3f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--seconds", type=float, default=2.0)
    arguments = parser.parse_args()
    server = MariaDB(flush_log=1)
    server.start()
    try:
        settings = DatabaseSettings(server.url("tidings_business"))
        assert server.pid is not None
        pid = server.pid

        async def measured() -> None:
            database = Database(settings, "business")
            try:
                await run(database, pid, rounds=arguments.rounds, seconds=arguments.seconds)
            finally:
                await database.close()

        uvloop.run(measured())
    finally:
        server.remove()


if __name__ == "__main__":
    main()
