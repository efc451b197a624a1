"""Compare the CPU and the log of a journal that keeps the history of messages and callbacks with that of one without.

    python -m benchmarks.history --rounds 6 --batches 200

Runs on a private MariaDB that commits to disk. Each round measures both, one after the other, for each batch size, on
tables of their own. A batch accepts messages, reports the statuses sent, delivered and read of those of the three
batches before, and finishes the callbacks of the batch before. Bodies are sealed. MariaDB's CPU includes its purge.
The figures are the lower quartiles of the rounds: other processes of the machine only add.
"""

from __future__ import annotations

import argparse
import dataclasses
import itertools
import re
import secrets
import time
from collections.abc import Sequence
from pathlib import Path

import uvloop

from coreapp.callback_bodies import BodySealer
from coreapp.journal.change import Change
from coreapp.journal.journal import Journal
from coreapp.webhook import bodies
from harness.mariadb import MariaDB
from tidings import e2ee
from tidings.installation.settings import DatabaseSettings
from tidings.storage import schema
from tidings.storage.business import callbacks, jobs, messages, sessions, shards
from tidings.storage.business.callback_history import EndedAttempt
from tidings.storage.business.messages import Status
from tidings.storage.database import Database
from tidings.wire.ids import MessageIds

ACCOUNT = "15550000000"
SIZES = (1, 17, 60)  # messages per batch
STEPS = (Status.SENT, Status.DELIVERED, Status.READ)
PURGED = 20  # transactions that the server's purge may leave
KEPT = 450  # bytes of the content that is kept of a message until it is delivered


@dataclasses.dataclass(frozen=True, slots=True)
class Figures:
    """Cost of one message."""

    own: float  # µs of CPU of this process
    server: float  # µs of CPU of the server
    log: float  # bytes of the server's log


class Load:
    """Sequence of batches of one size."""

    def __init__(self, size: int, *, has_history: bool, response: bytes) -> None:
        self._size = size
        self._has_history = has_history
        self._response = response
        self._ids = MessageIds()
        self._peers = itertools.cycle([f"1555{n:07}" for n in range(1000)])
        # Messages of the three batches before, the latest first.
        self._before: list[list[messages.MessageRow]] = [[], [], []]
        self._posted: list[callbacks.Callback] = []

    def change(self) -> Change:
        """Return the next batch."""
        now = int(time.time() * 1000)
        made = [
            messages.MessageRow(
                self._ids.new(),
                ACCOUNT,
                0,
                next(self._peers),
                "text",
                Status.ACCEPTED,
                now,
                secrets.token_hex(16),
                kept=secrets.token_bytes(KEPT),
            )
            for _ in range(self._size)
        ]
        steps = [(row, step) for rows, step in zip(self._before, STEPS, strict=True) for row in rows]
        reported = [self._callback(row, step, now) for row, step in steps]
        ended: Sequence[EndedAttempt] = ()
        if self._has_history:
            ended = [EndedAttempt(one, 1, now, 3, 200, self._response) for one in self._posted]
        change = Change(
            ACCOUNT,
            new_messages=made,
            enqueued_jobs=[jobs.Job(row.id, 0, ACCOUNT, row.peer, 1, "message", b"x" * 400, now) for row in made],
            sending_halves=[sessions.SealedSendingHalf(ACCOUNT, row.peer, b"s" * 300) for row in made],
            statuses={row.id: step for row, step in steps},
            finished_jobs=[row.id for row in self._before[0]],
            finished_callbacks=[one.seq for one in self._posted],
            ended_callbacks=ended,
            new_callbacks=reported,
        )
        self._before, self._posted = [made, *self._before[:2]], reported
        return change

    def _callback(self, row: messages.MessageRow, step: Status, now: int) -> callbacks.Callback:
        return callbacks.Callback(
            0,
            0,
            ACCOUNT,
            row.id,
            "status_change",
            bodies.status(row.id, row.peer, step, now // 1000),
            now,
            request_id=row.request_id,
            event=callbacks.status_event(row.id, row.peer, step),
            recipient=row.peer,
        )


def _cpu(server: MariaDB) -> float:
    """Return the seconds of CPU of a server's threads, to the nanosecond."""
    threads = Path(f"/proc/{server.pid}/task").iterdir()
    return sum(int((thread / "schedstat").read_text().split()[0]) for thread in threads) / 1e9


def _settled(server: MariaDB) -> tuple[float, int]:
    """Wait for the server's purge. Return the seconds of CPU, and the bytes of its log."""
    with server.connect() as connection, connection.cursor() as cursor:
        while True:
            cursor.execute("SHOW ENGINE INNODB STATUS")
            found = re.search(r"History list length (\d+)", str(cursor.fetchall()))
            assert found is not None
            if int(found[1]) < PURGED:
                break
            time.sleep(0.02)
        cursor.execute("SHOW GLOBAL STATUS LIKE 'Innodb_os_log_written'")
        ((_, log),) = cursor.fetchall()
    return _cpu(server), int(log)


async def measure(database: Database, server: MariaDB, size: int, batches: int, *, has_history: bool) -> Figures:
    """Measure batches of one size."""
    async with database.transaction() as connection:
        lease = await shards.claim(connection, 0, owner="me", address="a:1", heartbeat_timeout=30)
    assert lease is not None
    sealer = BodySealer(e2ee.Sealer(e2ee.Keyring({1: b"k" * 32})))
    journal = Journal(database, lease, last_seq=0, seal=sealer.seal, history=sealer if has_history else None)
    load = Load(size, has_history=has_history, response=b"ok")
    for _ in range(10):
        await journal.write(load.change())
    before, log = _settled(server)
    started = time.process_time()
    for _ in range(batches):
        await journal.write(load.change())
    own = time.process_time() - started
    after, more = _settled(server)
    await journal.close()
    async with database.transaction() as connection:
        await shards.release(connection, lease)
    count = batches * size
    return Figures(own / count * 1e6, (after - before) / count * 1e6, (more - log) / count)


async def run(server: MariaDB, *, rounds: int, batches: int) -> None:
    """Measure, and print a line for each batch size."""
    found: dict[tuple[int, bool], list[Figures]] = {}
    for number in range(rounds):
        database = Database(DatabaseSettings(server.url(f"round{number}")), "business")
        await schema.create_database(database.settings)
        await schema.upgrade(database)
        async with database.transaction() as connection:
            await shards.create_shards(connection, 1)
        for size in SIZES:
            for has_history in (number % 2 == 0, number % 2 == 1):
                figures = await measure(database, server, size, max(20, batches * 17 // size), has_history=has_history)
                found.setdefault((size, has_history), []).append(figures)
        await database.close()
    print("messages per batch | history | µs of CPU per message: own, MariaDB, both | bytes of log")
    for size in SIZES:
        for has_history in (False, True):
            rounds_of = found[size, has_history]
            own = _lower_quartile([one.own for one in rounds_of])
            of_server = _lower_quartile([one.server for one in rounds_of])
            both = _lower_quartile([one.own + one.server for one in rounds_of])
            log = _lower_quartile([one.log for one in rounds_of])
            kept = "kept" if has_history else "none"
            print(f"{size} | {kept} | {own:.0f}, {of_server:.0f}, {both:.0f} | {log:,.0f}")


def _lower_quartile(values: Sequence[float]) -> float:
    return sorted(values)[len(values) // 4]


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
