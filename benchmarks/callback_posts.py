"""CPU time per status of posting callbacks with 1, 10 and 100 in a post: `python -m benchmarks.callback_posts`.

Committed callbacks are posted to the benchmarks' webhook, with signatures, and deleted by the real journal on SQLite.
The CPU is that of this process alone: queue, deliveries, client, journal and SQLite.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import uvloop

from benchmarks.peers import own
from coreapp.callback_bodies import BodySealer
from coreapp.journal.change import Change
from coreapp.webhook import bodies, retry
from coreapp.webhook.delivery import Deliveries
from coreapp.webhook.poster import Poster
from coreapp.webhook.queue import CallbackQueue
from coreapp.webhook.target import CallbackTarget
from harness import polling
from harness.sink_process import SinkProcess
from tidings import e2ee
from tidings.aio.clock import SystemClock
from tidings.egress import addresses
from tidings.egress.guard import EgressGuard
from tidings.egress.settings import OutgoingSettings
from tidings.installation.settings import DatabaseSettings
from tidings.storage.business.callbacks import Callback, status_event
from tidings.storage.business.messages import Status
from tidings.storage.database import Database

RECIPIENTS = 1_000
CHANGES = 500  # callbacks per commit before the measurement


def callback(number: int, now: float) -> Callback:
    recipient = f"1555011{number % RECIPIENTS:04}"
    message_id = f"gBEG{number}"
    body = bodies.status(message_id, recipient, Status.SENT, int(now))
    event = status_event(message_id, recipient, int(Status.SENT))
    at = int(now * 1000)
    return Callback(0, 0, own.ACCOUNT, message_id, "status_change", body, at, event=event, recipient=recipient)


async def measure(directory: Path, url: str, count: int, batch: int) -> float:
    """Return the microseconds of CPU per status."""
    sealer = BodySealer(e2ee.Sealer(e2ee.Keyring.from_master(e2ee.generate_data_key(), 1)))
    database = Database(DatabaseSettings(f"sqlite+aiosqlite:///{directory}/business.db"), "business")
    journal, clock = await own.open_journal(database, sealer.seal), SystemClock()

    async def none_stored(after: int, limit: int) -> Sequence[Callback]:
        return []

    queue = CallbackQueue(2 * count, clock, none_stored)
    journal.on_callbacks(queue.offer)
    await queue.start(0)
    now = clock.now()
    for start in range(0, count, CHANGES):
        made = [callback(number, now) for number in range(start, min(start + CHANGES, count))]
        await journal.write(Change(own.ACCOUNT, new_callbacks=made))
    target = CallbackTarget(url, own.POSTS, retry.Policy(), (own.SIGNING_KEY,), batch=batch)
    poster = Poster(EgressGuard(OutgoingSettings(addresses.LOOPBACK)), timeout=60.0)
    deliveries = Deliveries(queue, journal, lambda: target, poster=poster, clock=clock)
    stop = asyncio.Event()
    started = time.process_time()
    delivering = asyncio.create_task(deliveries.run(stop))
    await polling.until(lambda: not len(queue), seconds=600.0, pause=0.05)
    await journal.write(Change(own.ACCOUNT))
    used = time.process_time() - started
    stop.set()
    await delivering
    await queue.close()
    await journal.close()
    await database.close()
    return used / count * 1e6


async def main(options: argparse.Namespace) -> None:
    found: dict[int, list[float]] = {batch: [] for batch in options.batches}
    with tempfile.TemporaryDirectory() as directory:
        async with SinkProcess(Path(directory), "") as sink:
            for _ in range(options.rounds):
                for batch in options.batches:
                    with tempfile.TemporaryDirectory(dir=directory) as one:
                        found[batch].append(await measure(Path(one), sink.url, options.count, batch))
                    await sink.take()
    for batch, values in found.items():
        low, high = min(values), max(values)
        print(f"{batch:3} in a post: {statistics.median(values):6.1f} µs of CPU per status ({low:.1f}–{high:.1f})")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=10_000, help="statuses per measurement (%(default)s)")
    parser.add_argument("--rounds", type=int, default=3, help="(%(default)s)")
    parser.add_argument("--batches", type=int, nargs="+", default=[1, 10, 100], help="statuses per post")
    uvloop.run(main(parser.parse_args()))
