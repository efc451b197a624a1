"""`python -m benchmarks.memory`: how much memory each process holds with 100,000 callbacks pending and 1,000 robots.

The webhook refuses everything (or is not set, with `--no-url`) until the callback queue is full; every process must
then be, and ever have been, below 300 MB. At last the webhook takes everything, and the books must balance.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import datetime
import sys
import tempfile
import time
from pathlib import Path

import psutil
import uvloop

from benchmarks.rig import contents, machine, stage
from benchmarks.rig.report import RESULTS
from harness import client, ledger, measure
from harness.client import Business, Sent
from harness.installation import Installation, keep_logs
from harness.mariadb import MariaDB
from harness.processes import usage
from harness.sink import Record
from harness.sink_process import SinkProcess

LIMIT_MB = 300
ROBOTS = 1000
CLIENTS = 32
ENVIRONMENT = {**stage.ENVIRONMENT, "TIDINGS_ROBOTS_PER_KIND": str(ROBOTS)}
DRAIN_SECONDS = 900.0
# A message has three callbacks; those of the messages in flight come on top.
PER_MESSAGE = 3


def pending(installation: Installation) -> int:
    """Callbacks that wait now."""
    return int(measure.metric(installation.metrics()["coreapp"], "callback_queue_size"))


async def fill(installation: Installation, business: Business, callbacks: int) -> list[Sent]:
    """Send until so many callbacks wait, or the gate closes because of them."""
    sent: list[Sent] = []
    full = asyncio.Event()

    async def watch() -> None:
        while not full.is_set():
            waiting = await asyncio.to_thread(pending, installation)
            print(f"  {len(sent)} messages sent, {waiting} callbacks wait", flush=True)
            if waiting >= callbacks:
                full.set()
            await asyncio.sleep(5)

    async def one_client(number: int) -> None:
        connection = await business.connect()
        position = number
        while not full.is_set():
            recipient = f"{stage.PREFIX}{position % ROBOTS:04d}"
            one = await business.post(connection, contents.text(recipient, f"Message {position}: "))
            position += CLIENTS
            sent.append(one)
            if one.request.status == 503:
                # The gate is closed; callbacks of what is in flight still come in.
                await asyncio.sleep(0.5)
            elif not one.request.accepted:
                raise client.Unexpected(f"message: status {one.request.status}")
        connection.close()

    async with asyncio.timeout(DRAIN_SECONDS), asyncio.TaskGroup() as group:
        group.create_task(watch())
        for number in range(CLIENTS):
            group.create_task(one_client(number))
    return sent


def weigh(installation: Installation) -> list[tuple[str, float, float]]:
    """Name, megabytes now, megabytes at most, of each of our processes and of the database server."""
    return [
        (name, psutil.Process(pid).memory_info().rss / 1e6, usage(pid).peak_rss / 1e6)
        for name, pid in installation.pids().items()
    ]


async def drain(sink: SinkProcess, installation: Installation, sent: list[Sent]) -> ledger.Verdict:
    """Let everything through and balance the books."""
    accepted = {one.request.message_id for one in sent if one.request.accepted}
    records: list[Record] = []
    deadline = time.monotonic() + DRAIN_SECONDS
    while not accepted <= measure.completion_times(records).keys() and time.monotonic() < deadline:
        await asyncio.sleep(2)
        records += [record for record in await sink.take() if record.answered == 200]
    statuses = [ledger.Status(r.event_id, r.message_id, r.status) for r in records]
    return ledger.reconcile([one.request for one in sent], installation.list_shown(), statuses)


async def run(options: argparse.Namespace) -> int:
    """The exit status."""
    with contextlib.ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="tidings-memory-")))
        mariadb = MariaDB(flush_log=1, buffer_pool_mb=128)
        stack.callback(mariadb.remove)
        await asyncio.to_thread(mariadb.start)
        async with (
            Installation(directory, mariadb, ENVIRONMENT) as installation,
            SinkProcess(directory, installation.webhook_secret) as sink,
        ):
            await installation.start()
            business = await installation.business()
            await sink.answer_with(503)
            if not options.no_url:
                await business.set_webhook(sink.url)
            else:
                await business.must("PATCH", "/v1/settings/application", {"sent_status": True})
            await business.check_contacts(stage.recipients(ROBOTS, ROBOTS))
            sent = await fill(installation, business, options.callbacks)
            waiting = await asyncio.to_thread(pending, installation)
            weights = await asyncio.to_thread(weigh, installation)
            print("draining ...", flush=True)
            await sink.answer_with(200)
            await business.set_webhook(sink.url)
            verdict = await drain(sink, installation, sent)
            versions = await asyncio.to_thread(machine.describe, mariadb)
            if options.keep_logs:
                installation.keep_metrics()
                keep_logs(directory, Path(options.keep_logs))
    heavy = [name for name, now, peak in weights if name != "mariadbd" and max(now, peak) >= LIMIT_MB]
    webhook = "not set" if options.no_url else "refusing everything with 503"
    lines = [
        f"{waiting} callbacks pending, webhook {webhook}, {ROBOTS} robots; limit {LIMIT_MB} MB for each process",
        "",
        "| process | MB now | MB at most |",
        "|---|--:|--:|",
        *(f"| {name} | {now:.0f} | {peak:.0f} |" for name, now, peak in weights),
        "",
        f"Too much: {', '.join(heavy)}" if heavy else "Every process is below the limit.",
        verdict.describe() or "After that the webhook took everything and the books balance.",
    ]
    print("\n".join(lines), flush=True)
    if options.callbacks >= 100_000:
        date = datetime.date.today().isoformat()
        where = ", ".join(f"{name} {value}" for name, value in versions.items())
        suffix = "memory-no-url" if options.no_url else "memory"
        text = f"# Memory, {date}\n\nTaken by `python -m benchmarks.memory`. Machine: {where}.\n\n"
        (RESULTS / f"{date}-{suffix}.md").write_text(text + "\n".join(lines) + "\n")
    return 1 if heavy or verdict.faults() else 0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--callbacks", type=int, default=100_000, help="that are to wait (%(default)s)")
    parser.add_argument("--no-url", action="store_true", help="set no webhook instead of one that refuses")
    parser.add_argument("--keep-logs", metavar="FOLDER", help="copy the logs of the processes there")
    options = parser.parse_args()
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        status = runner.run(run(options))
    sys.exit(status)


if __name__ == "__main__":
    main()
