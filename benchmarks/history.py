"""Compare the CPU of a journal that keeps the history of messages and callbacks with that of one that keeps none.

    python -m benchmarks.history --rounds 6 --batches 200

Runs on a private MariaDB that commits to disk. Each round measures both, one after the other, for each batch size, on
tables of their own. A batch accepts messages, ends the jobs of the batch before and reports their statuses sent,
delivered and read by three callbacks, and finishes the callbacks of the batch before. Bodies are sealed.
"""

from __future__ import annotations

import argparse
import itertools
import statistics
import time
from collections.abc import Sequence

import psutil
import uvloop

from coreapp.callback_bodies import BodySealer
from coreapp.journal import Change, Journal
from harness.mariadb import MariaDB
from tidings import e2ee
from tidings.installation.settings import DatabaseSettings
from tidings.storage import schema
from tidings.storage.business import callback_history, callbacks, jobs, messages, sessions, shards
from tidings.storage.business.callback_history import Ended
from tidings.storage.business.messages import Status
from tidings.storage.database import Database
from tidings.wire.ids import MessageIds

ACCOUNT = "15550000000"
SIZES = (1, 17, 60)  # messages per batch
STEPS = (Status.SENT, Status.DELIVERED, Status.READ)
BODY = b'{"statuses":[{"id":"%s","recipient_id":"15550110001","status":"delivered","timestamp":"1700000000"}]}'


class Load:
    """Sequence of batches of one size."""

    def __init__(self, size: int, *, has_history: bool, response: bytes) -> None:
        self._size = size
        self._has_history = has_history
        self._response = response
        self._ids = MessageIds()
        self._peers = itertools.cycle([f"1555{n:07}" for n in range(1000)])
        self._before: list[messages.MessageRow] = []
        self._posted: list[callbacks.Callback] = []

    def change(self) -> Change:
        """Return the next batch."""
        now = int(time.time() * 1000)
        made = [
            messages.MessageRow(self._ids.new(), ACCOUNT, 0, next(self._peers), "text", Status.ACCEPTED, now, "")
            for _ in range(self._size)
        ]
        reported = [self._callback(row, step, now) for row in self._before for step in STEPS]
        ended: Sequence[Ended] = ()
        if self._has_history:
            ended = [
                Ended(
                    one,
                    callback_history.attempt(one, 1, now, 3.0, 200, error="", response=self._response),
                )
                for one in self._posted
            ]
        change = Change(
            ACCOUNT,
            new_messages=made,
            enqueued_jobs=[jobs.Job(row.id, 0, ACCOUNT, row.peer, 1, "message", b"x" * 400, now) for row in made],
            sending_halves=[sessions.SealedSendingHalf(ACCOUNT, row.peer, b"s" * 300) for row in made],
            statuses={row.id: Status.READ for row in self._before},
            finished_jobs=[row.id for row in self._before],
            finished_callbacks=[one.seq for one in self._posted],
            ended_callbacks=ended,
            new_callbacks=reported,
        )
        self._before, self._posted = made, reported
        return change

    def _callback(self, row: messages.MessageRow, step: Status, now: int) -> callbacks.Callback:
        body = BODY % row.id.encode()
        event = callbacks.status_event(row.id, row.peer, step)
        return callbacks.Callback(0, 0, ACCOUNT, row.id, "status_change", body, now, event=event, recipient=row.peer)


async def measure(database: Database, pid: int, size: int, batches: int, *, has_history: bool) -> list[float]:
    """Return the microseconds of CPU per message: of this process, and of the server."""
    async with database.transaction() as connection:
        lease = await shards.claim(connection, 0, owner="me", address="a:1", heartbeat_timeout=30)
    assert lease is not None
    bodies = BodySealer(e2ee.Sealer(e2ee.Keyring({1: b"k" * 32})))
    journal = Journal(database, lease, last_seq=0, seal=bodies.seal, history=bodies if has_history else None)
    load, server = Load(size, has_history=has_history, response=b""), psutil.Process(pid)
    for _ in range(10):
        await journal.write(load.change())
    own, of_server = time.process_time(), sum(server.cpu_times()[:2])
    for _ in range(batches):
        await journal.write(load.change())
    took = [time.process_time() - own, sum(server.cpu_times()[:2]) - of_server]
    await journal.close()
    async with database.transaction() as connection:
        await shards.release(connection, lease)
    return [value / batches / size * 1e6 for value in took]


async def run(server: MariaDB, *, rounds: int, batches: int) -> None:
    """Measure, and print a line for each batch size."""
    assert server.pid is not None
    found: dict[tuple[int, bool], list[list[float]]] = {}
    for number in range(rounds):
        database = Database(DatabaseSettings(server.url(f"round{number}")), "business")
        await schema.create_database(database.settings)
        await schema.upgrade(database)
        async with database.transaction() as connection:
            await shards.create_shards(connection, 1)
        for size in SIZES:
            for has_history in (number % 2 == 0, number % 2 == 1):
                figures = await measure(
                    database, server.pid, size, max(20, batches * 17 // size), has_history=has_history
                )
                found.setdefault((size, has_history), []).append(figures)
        await database.close()
    print("messages per batch | without history: own, server | with | difference, µs of CPU per message")
    for size in SIZES:
        sides = [[statistics.median(column) for column in zip(*found[size, w], strict=True)] for w in (False, True)]
        more = sum(sides[1]) - sum(sides[0])
        cells = [" ".join(f"{value:.0f}" for value in side) for side in sides]
        print(f"{size} | {cells[0]} | {cells[1]} | {more:+.0f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--batches", type=int, default=200, help="of 17 messages; of other sizes, as many messages")
    arguments = parser.parse_args()
    server = MariaDB(flush_log=1)
    server.start()
    try:
        uvloop.run(run(server, rounds=arguments.rounds, batches=arguments.batches))
    finally:
        server.remove()


if __name__ == "__main__":
    main()
