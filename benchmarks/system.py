"""Measures the whole system on this machine: `python -m benchmarks.system [--quick] [--workload NAME …]`.

Everything runs here: network, robots, Coreapp, Webapp, MariaDB, the clients and the webhook. Limits are off, MariaDB
flushes its log at every commit. Any error, and any message not accounted for, ends the benchmark with exit status 1.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import dataclasses
import os
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import uvloop

from benchmarks import report, workloads
from benchmarks.workloads import Workload
from harness import client, ledger, measure
from harness.client import Business, Load
from harness.installation import Installation, keep_logs
from harness.mariadb import MariaDB
from harness.processes import Ended
from harness.sink import Counts, Record
from harness.sink_process import SinkProcess

RESULTS = Path(__file__).parent / "results"
ENVIRONMENT = {
    "TIDINGS_MESSAGES_RATE": "0",
    "TIDINGS_CONTACTS_RATE": "0",
    "TIDINGS_ROBOTS_KINDS": "11",
}
WARM_UP_ROUNDS = 2
# Messages a second below which a run is given up.
SLOWEST = 10.0


class Failed(Exception):
    """The run is no measurement: `str()` says why."""


async def measure_one(installation: Installation, workload: Workload, messages: int) -> dict[str, Any]:
    """Start from the saved state, run one workload, stop; returns the figures. Raises `Failed` and others."""
    await asyncio.to_thread(installation.restore)
    async with SinkProcess(installation.directory, installation.webhook_secret) as sink:
        try:
            await installation.start(extra=workload.environment())
            business = await installation.business()
            await business.set_webhook(sink.url)
            if workload.warm:
                await _warm_up(business, sink, workload)
            return await _run(installation, business, sink, workload, messages)
        finally:
            await asyncio.to_thread(installation.keep_metrics)
            await installation.stop()


async def _warm_up(business: Business, sink: SinkProcess, workload: Workload) -> None:
    """Every contact is known, every session has been answered by its recipient."""
    numbers = workload.recipients(workload.robots)
    await business.check_contacts(numbers)
    for round_ in range(WARM_UP_ROUNDS):
        work = [(number, workloads.text(f"warm-up {round_}", i)) for i, number in enumerate(numbers)]
        await client.closed_loop(business, work, workload.clients, contacts_first=False)
        await _wait_complete(sink, (round_ + 1) * len(numbers))


async def _run(
    installation: Installation, business: Business, sink: SinkProcess, workload: Workload, messages: int
) -> dict[str, Any]:
    earlier = len(installation.list_shown())
    await sink.take()
    work = [(number, workloads.text(workload.name, i)) for i, number in enumerate(workload.recipients(messages))]
    before = await measure.read(installation, sink.pid)
    started = time.time()
    load = await client.closed_loop(business, work, workload.clients, contacts_first=workload.contacts_first)
    sent_in = time.time() - started
    await _wait_complete(sink, messages)
    after = await measure.read(installation, sink.pid)
    counts = await sink.counts()
    records = await sink.take()
    verdict = _reconcile(load, installation.list_shown()[earlier:], records, counts)
    return _figures(workload, messages, started, sent_in, load, records, before, after, verdict)


async def _wait_complete(sink: SinkProcess, messages: int) -> Counts:
    try:
        async with asyncio.timeout(60 + messages / SLOWEST):
            return await sink.wait_complete(messages)
    except TimeoutError:
        raise Failed(f"of {messages} messages only these were completed: {await sink.counts()}") from None


def _reconcile(load: Load, shown: Sequence[ledger.Shown], records: Sequence[Record], counts: Counts) -> ledger.Verdict:
    statuses = [ledger.Status(r.event_id, r.message_id, r.status) for r in records if r.status != "inbound"]
    verdict = ledger.reconcile([sent.request for sent in load.sent], shown, statuses)
    if verdict.faults():
        raise Failed(verdict.describe())
    if counts.bad_signatures or counts.unreadable:
        raise Failed(f"callbacks with a wrong signature or an unreadable body: {counts}")
    return verdict


def _figures(
    workload: Workload,
    messages: int,
    started: float,
    sent_in: float,
    load: Load,
    records: Sequence[Record],
    before: measure.Reading,
    after: measure.Reading,
    verdict: ledger.Verdict,
) -> dict[str, Any]:
    """Everything for the report; latencies in milliseconds, CPU in microseconds for a message, memory in MB."""
    rates = measure.rates(started, records)
    done = measure.completion_times(records)
    to_read = [done[sent.request.message_id] - sent.started for sent in load.sent]
    answered = [sent.took for sent in load.sent]

    def milliseconds(values: Sequence[float]) -> dict[str, float]:
        return {name: round(value * 1000, 2) for name, value in measure.percentiles(values).items()}

    return {
        "name": workload.name,
        "title": workload.title,
        "workload": dataclasses.asdict(workload),
        "messages": messages,
        "seconds": round(rates.seconds, 2),
        "rate": round(rates.whole, 1),
        "steady_rate": round(rates.steady, 1),
        "api_rate": round(messages / sent_in, 1),
        "message_ms": milliseconds(answered),
        "contacts_ms": milliseconds(load.contacts_took) if load.contacts_took else {},
        "callbacks_ms": milliseconds(to_read),
        "cpu_us": {name: round((after.cpu[name] - before.cpu[name]) / messages * 1e6) for name in sorted(after.cpu)},
        "commits": {name: round((after.commits[name] - before.commits[name]) / messages, 4) for name in after.commits},
        "others_cpu": round(
            max(0.0, (after.busy - before.busy) - sum(after.cpu[name] - before.cpu[name] for name in after.cpu))
            / (rates.seconds * (os.cpu_count() or 1)),
            3,
        ),
        "commit_statements": round((after.statements - before.statements) / messages, 4),
        "log_bytes": round((after.log_bytes - before.log_bytes) / messages),
        "peak_rss_mb": {name: round(size / 1e6, 1) for name, size in sorted(after.peak_rss.items())},
        "repeated_callbacks": verdict.repeats,
    }


async def prepare(installation: Installation, robots: int) -> None:
    """Register the robots, change the default password, and keep that state for every run."""
    print(f"registering {robots} robots ...", flush=True)
    started = time.monotonic()
    await installation.start()
    await installation.business()
    await installation.stop()
    await asyncio.to_thread(installation.save)
    print(f"prepared in {time.monotonic() - started:.0f} s", flush=True)


async def run(options: argparse.Namespace) -> int:
    """All runs that were asked for; returns the exit status."""
    chosen = [workloads.find(name) for name in options.workload] if options.workload else list(workloads.WORKLOADS)
    counts = {w.name: max(100, int(options.messages * w.share)) for w in chosen}
    robots = max(w.robots or counts[w.name] for w in chosen)
    results: list[dict[str, Any]] = []
    failures = 0
    with contextlib.ExitStack() as stack:
        directory = stack.enter_context(tempfile.TemporaryDirectory(prefix="tidings-bench-"))
        mariadb = MariaDB(flush_log=1, buffer_pool_mb=256)
        stack.callback(mariadb.remove)
        await asyncio.to_thread(mariadb.start)
        environment = {**ENVIRONMENT, "TIDINGS_ROBOTS_PER_KIND": str(robots)}
        async with Installation(Path(directory), mariadb, environment, profile=options.profile) as installation:
            await prepare(installation, robots)
            for workload in chosen:
                print(f"{workload.title}: {counts[workload.name]} messages ...", flush=True)
                try:
                    figures = await measure_one(installation, workload, counts[workload.name])
                except (Failed, Ended, TimeoutError, client.NoAnswer, client.Unexpected, ExceptionGroup) as error:
                    failures += 1
                    print(f"FAILED {workload.name}: {report.reason(error)}", flush=True)
                    if options.keep_logs:
                        keep_logs(installation.directory, Path(options.keep_logs) / workload.name)
                    continue
                results.append(figures)
                print(report.one_line(figures), flush=True)
                if options.keep_logs:
                    keep_logs(installation.directory, Path(options.keep_logs) / workload.name)
            versions = await asyncio.to_thread(report.versions, mariadb)
    if results:
        whole = not options.workload and not options.quick
        paths = report.write(results, versions, RESULTS if whole else Path(options.output or RESULTS), whole=whole)
        print(report.table(results), flush=True)
        print("written: " + ", ".join(path.name for path in paths), flush=True)
    return 1 if failures else 0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    names = ", ".join(workload.name for workload in workloads.WORKLOADS)
    parser.add_argument("--quick", action="store_true", help="1,000 messages a run, to see that it works")
    parser.add_argument("--workload", action="append", help=f"only this run (may be repeated): {names}")
    parser.add_argument("--messages", type=int, help="messages a run (default 10,000, at most as many)")
    parser.add_argument("--keep-logs", metavar="FOLDER", help="copy the logs of the processes there")
    parser.add_argument("--profile", action="store_true", help="sample the stacks; the profiles go to --keep-logs")
    parser.add_argument("--output", metavar="FOLDER", help="where the results go (default benchmarks/results)")
    options = parser.parse_args()
    options.messages = min(options.messages or (1_000 if options.quick else 10_000), 10_000)
    for name in options.workload or ():
        if name not in {workload.name for workload in workloads.WORKLOADS}:
            parser.error(f"no workload {name}; there are {names}")
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        status = runner.run(run(options))
    sys.exit(status)


if __name__ == "__main__":
    main()
