"""Tidings beside whaloc in one run: `python -m benchmarks.emulators [--whaloc FOLDER] [--seconds 10]`.

Features point by point, start-up time, requests per second of 16 clients, and what is left of 200 accepted messages
after `kill -9`. whaloc is measured from a checkout that is built (`npm ci && npm run build`, Node 24). Without it,
Tidings is measured alone. The result is benchmarks/results/<date>-emulators.md.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import dataclasses
import datetime
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import uvloop

from benchmarks.emulators import probes, webhook
from benchmarks.emulators.probes import Bench
from benchmarks.emulators.targets import MISSING, EmulatorTarget, TidingsTarget, WhalocTarget
from benchmarks.emulators.webhook import CountingWebhook
from benchmarks.rig import machine
from benchmarks.rig.run import RunFailed
from harness import measure

RESULTS = Path(__file__).parents[1] / "results"
CLIENTS, KILLED = 16, 200
SETTLE_SECONDS = 60.0
WARM_UP, WARM_UP_SECONDS = 100, 10.0  # messages before the load, and the longest wait for their events
Make = Callable[[Path, CountingWebhook], EmulatorTarget]


@dataclasses.dataclass(slots=True)
class Findings:
    """Results of one emulator."""

    name: str
    first_start: float = 0.0  # seconds, on an empty directory
    second_start: float = 0.0  # seconds, after the kill
    rate: float = 0.0  # accepted messages per second
    p50: float = 0.0  # milliseconds
    p99: float = 0.0
    memory: int = 0  # bytes after the load
    accepted: int = 0  # messages before the kill
    survived: int = 0  # of them, those with all three statuses afterwards
    features: dict[str, str] = dataclasses.field(default_factory=dict)


@contextlib.asynccontextmanager
async def _running(make: Make, directory: Path, found: Findings) -> AsyncIterator[Bench]:
    """Start an emulator on an empty directory, with its webhook."""
    async with webhook.listening() as listening:
        target = make(directory, listening)
        try:
            found.first_start = await target.start()
            listening.secret = (await target.prepare(listening.url)).encode()
            async with target.client() as http:
                yield Bench(target, http, listening)
        finally:
            target.kill9()


async def _load(bench: Bench, seconds: float, found: Findings) -> None:
    """Send from all clients, each of which waits for its response, after a warm-up."""
    before = bench.webhook.complete()
    for number in range(WARM_UP):
        await bench.send("text", {"body": f"warm-up {number}"}, to=bench.target.ids.one_of(number))
    await bench.webhook.until(lambda: bench.webhook.complete() >= before + WARM_UP, WARM_UP_SECONDS)
    took: list[float] = []
    ends = time.monotonic() + seconds

    async def client(number: int) -> None:
        async with bench.target.client() as http:
            own = dataclasses.replace(bench, http=http)
            while time.monotonic() < ends:
                started = time.perf_counter()
                recipient = own.target.ids.one_of(number)
                response = await own.send("text", {"body": f"load {number} {started}"}, to=recipient)
                if response.status_code != 200:
                    raise RunFailed(f"{bench.target.name}: HTTP {response.status_code} {response.text[:200]}")
                took.append(time.perf_counter() - started)

    async with asyncio.TaskGroup() as group:
        for number in range(CLIENTS):
            group.create_task(client(number))
    shares = measure.percentiles(took)
    found.rate, found.p50, found.p99 = len(took) / seconds, shares["p50"] * 1000, shares["p99"] * 1000
    found.memory = bench.target.memory()
    await bench.webhook.until(lambda: bench.webhook.complete() >= len(took), SETTLE_SECONDS)


async def _kill(bench: Bench, found: Findings) -> None:
    """Kill the emulator while its webhook refuses everything, and count what it reports after its next start."""
    bench.webhook.status = 503
    sent = []
    for number in range(KILLED):
        response = await bench.send("text", {"body": f"killed {number}"})
        if response.status_code == 200:
            sent.append(response.json()["messages"][0]["id"])
    bench.target.kill9()
    bench.webhook.status = 200
    found.accepted, found.second_start = len(sent), await bench.target.start()

    def survivors() -> int:
        return sum(bench.webhook.statuses[one] >= webhook.STATUSES for one in sent)

    await bench.webhook.until(lambda: survivors() == len(sent), SETTLE_SECONDS)
    found.survived = survivors()


async def _measure(name: str, make: Make, directory: Path, seconds: float) -> Findings:
    found = Findings(name)
    await asyncio.to_thread(directory.mkdir)
    async with _running(make, directory, found) as bench:
        print(f"{name}: features ...", flush=True)
        found.features = await probes.run(bench)
        print(f"{name}: {CLIENTS} clients, {seconds:.0f} s ...", flush=True)
        await _load(bench, seconds, found)
        print(f"{name}: kill -9 ...", flush=True)
        await _kill(bench, found)
    return found


def page(every: list[Findings], remarks: list[str], date: str) -> str:
    """Return the report in Markdown."""
    names = [found.name for found in every]
    head = ["| | " + " | ".join(names) + " |", "|---|" + "---|" * len(names)]
    figures: dict[str, list[str]] = {
        "first start, s": [f"{found.first_start:.1f}" for found in every],
        "start after the kill, s": [f"{found.second_start:.1f}" for found in every],
        f"messages per second, {CLIENTS} clients": [f"{found.rate:.0f}" for found in every],
        "p50, p99 of `POST /messages`, ms": [f"{found.p50:.1f}, {found.p99:.1f}" for found in every],
        "memory after the load, MB": [f"{found.memory / 1e6:.0f}" for found in every],
        "accepted before `kill -9`, all statuses afterwards": [f"{f.accepted}, {f.survived}" for f in every],
    }
    rows = [f"| {name} | " + " | ".join(values) + " |" for name, values in figures.items()]
    features = [
        f"| {probe.name} | " + " | ".join(found.features.get(probe.name, "–") for found in every) + " |"
        for probe in probes.PROBES
    ]
    described = ", ".join(f"{name} {value}" for name, value in machine.describe().items())
    return "\n".join(
        [
            f"# Emulators of the Cloud API, {date}",
            "",
            "Taken by `make bench-emulators`. Each starts on an empty directory, with one webhook that verifies every",
            "signature. Tidings is `tidings up` on SQLite: it queues, encrypts, delivers to a recipient in another",
            "process and reports what that recipient did. *After `kill -9`*: the webhook refuses everything with 503,",
            "200 messages are accepted, all processes are killed and started again on the same data, the webhook",
            "accepts everything, and 60 s later the messages with all three statuses are counted.",
            "",
            f"Machine: {described}.",
            "",
            *head,
            *rows,
            "",
            "## Features",
            "",
            "*yes*, or how the response differs.",
            "",
            *head,
            *features,
            "",
            *remarks,
        ]
    )


async def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--whaloc", type=Path, metavar="FOLDER", help="checkout of whaloc, built")
    parser.add_argument("--node", default="node", help="Node 24 or newer, for whaloc (default %(default)s)")
    parser.add_argument("--seconds", type=float, default=10.0, help="of load (default %(default)s)")
    parser.add_argument("--quick", action="store_true", help="a second of load, and no file is written")
    options = parser.parse_args()
    seconds = 1.0 if options.quick else options.seconds
    every, remarks = [], []
    with tempfile.TemporaryDirectory(prefix="tidings-emulators-") as directory:
        makes: dict[str, Make] = {"Tidings": lambda folder, _: TidingsTarget(folder)}
        if options.whaloc is None:
            remarks.append(f"whaloc was not measured: {MISSING}.")
        else:
            makes["whaloc"] = lambda folder, listening: WhalocTarget(
                folder, options.whaloc, listening.url, options.node
            )
        for name, make in makes.items():
            try:
                every.append(await _measure(name, make, Path(directory) / name, seconds))
            except RunFailed as failure:
                remarks.append(f"{name} was not measured: {failure}")
    date = datetime.date.today().isoformat()
    text = page(every, remarks, date)
    print(text, flush=True)
    if not options.quick and every:
        (RESULTS / f"{date}-emulators.md").write_text(text + "\n")
    return 0 if len(every) == len(makes) else 1


if __name__ == "__main__":
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        sys.exit(runner.run(main()))
