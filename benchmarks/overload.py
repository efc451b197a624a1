"""Overload: `python -m benchmarks.overload [--quick] [--clients 10000] [--seconds 12]`.

Finds the peak rate of 64 clients that wait for each response, then offers 2, 5 and 10 times that rate by 10,000 clients
with one connection each. Requirements for the server: as much work as before, immediate refusal of the rest, health
that responds, and normal operation within two seconds after the flood.
"""

from __future__ import annotations

import argparse
import asyncio
import dataclasses
import functools
import itertools
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from benchmarks import calibrations
from benchmarks.flood import FloodParameters, FloodResult, HealthCheck, Request
from benchmarks.rig import contents, messages, report, session, stage, summary
from benchmarks.rig.messages import Measured
from benchmarks.rig.run import Run, RunFailed
from benchmarks.rig.session import Benchmark, Session, Variant
from benchmarks.rig.stage import Scene, Stage
from harness import client, ledger, measure, spawn
from harness.client import Message, Sent

ROOT = Path(__file__).parents[1]
FACTORS = (2, 5, 10)
ROBOTS, PEAK_CLIENTS = 1000, 64
# Seconds before and after the flood, in which only the watcher sends.
CALM, AFTERWARDS = 4.0, 15.0
# Seconds for connecting before the watcher starts, and clients for which a second is added: each makes one request.
CONNECTING, EACH_SECOND = 10.0, 400
# Least bound, in seconds, below which a health check counts as normal; else the p99 before the flood.
QUIET = 0.05
HOW = """\
Taken by `make bench-overload` (`python -m benchmarks.overload`), warm sessions, 1,000 recipients, texts of 100 bytes.
*peak* is what 64 clients get that wait for their responses. Then many clients, each with a connection of its own, offer
a multiple of it together, in a rhythm of their own that no refusal changes; a client whose last request has no answer
yet skips its turn (*skipped*). *Goodput* is messages accepted a second, and messages a second with all callbacks,
while the flood lasts. Another process looks at `/v1/health` every 50 ms and sends a message every 100 ms throughout;
it is *normal again* from the look at which, for one second, every look takes no more than the slowest hundredth of
those before the flood (or 50 ms), and its messages are accepted. All share two cores: the more is offered, the more
of them the clients take."""


@dataclasses.dataclass(frozen=True, slots=True)
class Window:
    """Time of a flood."""

    start: float  # Unix seconds
    end: float  # Unix seconds

    def __contains__(self, moment: float) -> bool:
        return self.start <= moment < self.end


def until_normal(window: Window, looks: Sequence[HealthCheck], requests: Sequence[Request]) -> float | None:
    """Return the seconds from the end of a flood to normal operation; None if the watcher did not see it.

    looks:    health checks
    requests: messages of the watcher
    """
    before = [look.took for look in looks if look.started < window.start]
    bound = max(QUIET, measure.percentiles(before)["p99"] if before else 0.0)
    after = [(look.started, look.took <= bound and look.status == 200) for look in looks if look.started >= window.end]
    after += [(one.started, 200 <= one.status < 300) for one in requests if one.started >= window.end]
    after.sort()
    good_from: float | None = None
    for started, is_good in after:
        if not is_good:
            good_from = None
        elif good_from is None:
            good_from = started
        elif started >= good_from + 1.0:
            return max(0.0, good_from - window.end)
    return None


async def find_peak(prepared: Stage, seconds: float) -> Run:
    """Measure the rate of `PEAK_CLIENTS` clients that wait for each response."""

    def work(until: float) -> Iterator[Message]:
        for i in itertools.count():
            if time.monotonic() >= until:
                return
            yield contents.text(numbers[i % ROBOTS], f"peak {i}: ")

    numbers = stage.recipients(ROBOTS, ROBOTS)
    async with prepared.performance("peak") as scene:
        await messages.warm_up(scene, numbers)
        async with messages.measured(scene) as found:
            await client.closed_loop(scene.business, work(time.monotonic() + seconds), PEAK_CLIENTS, load=found.load)
        return found.run("peak", f"{PEAK_CLIENTS} clients that wait")


async def measure_flood(prepared: Stage, factor: int, peak: float, clients: int, seconds: float) -> Run:
    """Measure one flood. Raises `RunFailed` and others.

    factor: offered load, relative to the peak
    peak:   messages per second
    """
    numbers = stage.recipients(ROBOTS, ROBOTS)
    async with prepared.performance(f"flood{factor}") as scene:
        await messages.warm_up(scene, numbers)
        async with messages.measured(scene) as found:
            watched, flooded, window = await _flood(scene, factor * peak, clients, seconds)
            # The clients connected before that.
            found.started = window.start - CALM
            for one in (*flooded.requests, *watched.requests):
                request = ledger.Request(one.number, one.digest, one.status or None, one.id)
                found.load.sent.append(Sent(request, one.started, one.took))
        return _figures(found, watched, flooded, window, factor, peak)


async def _flood(scene: Scene, rate: float, clients: int, seconds: float) -> tuple[FloodResult, FloodResult, Window]:
    directory = scene.installation.directory
    begins = time.time() + CONNECTING + clients / EACH_SECOND
    window = Window(begins + CALM, begins + CALM + seconds)
    flood = FloodParameters(
        ports=[scene.business.port],
        token=scene.business.token,
        numbers=stage.recipients(ROBOTS, ROBOTS),
        clients=clients,
        rate=rate,
        seconds=seconds,
        start=window.start,
        label="flood",
        output=str(directory / "flood.msgpack"),
    )
    watch = msgspec.structs.replace(
        flood,
        clients=1,
        seconds=CALM + seconds + AFTERWARDS,
        start=begins,
        label="watch",
        output=str(directory / "watch.msgpack"),
        watch=True,
    )
    watched, flooded = await asyncio.gather(send_apart(scene, "watcher", watch), send_apart(scene, "clients", flood))
    return watched, flooded, window


async def send_apart(scene: Scene, name: str, parameters: FloodParameters) -> FloodResult:
    """Send in a separate process. Raises `RunFailed`.

    name: of the process in the report
    """
    log_path = scene.installation.directory / f"{name}.log"
    orders_path = scene.installation.directory / f"{name}.json"
    orders_path.write_bytes(msgspec.json.encode(parameters))
    with log_path.open("ab") as log:
        process: subprocess.Popen[bytes] = spawn.start(
            [sys.executable, "-m", "benchmarks.flood", str(orders_path)], cwd=ROOT, stdout=log, stderr=log
        )
    scene.helpers[name] = process.pid
    if await asyncio.to_thread(process.wait):
        raise RunFailed(f"{name} failed: {log_path.read_text()[-1500:]}")
    return await asyncio.to_thread(_read, Path(parameters.output))


def _read(path: Path) -> FloodResult:
    return msgspec.msgpack.decode(path.read_bytes(), type=FloodResult)


def _figures(
    found: Measured, watched: FloodResult, flooded: FloodResult, window: Window, factor: int, peak: float
) -> Run:
    seconds = window.end - window.start
    accepted = [one for one in flooded.requests if 200 <= one.status < 300]
    refused = [one for one in flooded.requests if one.status in client.BUSY]
    others = [one for one in flooded.requests if one.status not in client.BUSY and not 200 <= one.status < 300]
    done = measure.completion_times(found.records).values()
    health = {
        name: [look.took for look in watched.health_checks if is_then(look.started)]
        for name, is_then in (
            ("health in the flood", lambda moment: moment in window),
            ("health before", lambda moment: moment < window.start),
            ("health afterwards", lambda moment: moment >= window.end),
        )
    }
    normal = until_normal(window, watched.health_checks, watched.requests)
    completed = sum(moment in window for moment in done) / seconds
    details = {
        "offered": len(flooded.requests) / seconds,
        "accepted": sum(one.started + one.took in window for one in accepted) / seconds,
        "completed": completed,
        "peak": peak,
        "refused": dict(sorted((str(s), sum(o.status == s for o in refused)) for s in client.BUSY)),
        "otherwise": len(others),
        "skipped": flooded.late,
        "health_failures": sum(look.status != 200 for look in watched.health_checks),
        "until_normal": normal,
    }
    run = found.run(f"flood{factor}", f"{factor} × the peak", parameters={"factor": factor}, details=details)
    latencies = {name: summary.summarise(took) for name, took in health.items() if took}
    if refused:
        latencies["refusal"] = summary.summarise([one.took for one in refused])
    if accepted:
        latencies["accepted in the flood"] = summary.summarise([one.took for one in accepted])
    # The rate in the table is that during the flood.
    return dataclasses.replace(run, rate=completed, seconds=seconds, latencies={**latencies, **run.latencies})


async def measure_all(current: Session) -> None:
    """Measure the peak, then each multiple of it, each on a fresh state."""
    options = current.options
    seconds = options.seconds or (4.0 if options.quick else 12.0)
    clients = options.clients or (1000 if options.quick else 10_000)
    # The clients hold all allowed connections, and the watcher has two.
    environment = {"TIDINGS_API_CONNECTIONS": str(clients + 1000)}
    async with stage.prepared(current, robots=ROBOTS, environment=environment) as prepared:
        peak = await current.once(Variant("peak", "the peak", functools.partial(find_peak, prepared, seconds)))
        if peak is None:
            return
        for factor in FACTORS:
            measured = functools.partial(measure_flood, prepared, factor, peak.rate, clients, seconds)
            await current.once(Variant(f"flood{factor}", f"{factor} × the peak, {clients:,} clients", measured))
    floods = [run for run in current.report.runs if run.name != "peak"]
    current.report.notes += ["## What a flood does", "\n".join(table(floods, peak))]


def table(floods: Sequence[Run], peak: Run) -> list[str]:
    """Return a table with a line per flood."""
    header = ["offered", "offered/s", "skipped", "accepted/s", "to the peak", "with all callbacks/s", "to the peak"]
    header += [
        "429",
        "503",
        "other",
        "refusal p50 / p99, ms",
        "health p50 / p99 / max, ms",
        "health failed",
        "normal again",
    ]
    rows = []
    for run in floods:
        d, latencies = run.details, run.latencies
        health, refusal = latencies.get("health in the flood"), latencies.get("refusal")
        rows.append(
            [
                run.title + (" †" if run.is_marked else ""),
                f"{d['offered']:,.0f}",
                f"{d['skipped']:,}",
                f"{d['accepted']:,.0f}",
                f"{d['accepted'] / peak.rate:.2f}",
                f"{d['completed']:,.0f}",
                f"**{d['completed'] / peak.rate:.2f}**",
                *(f"{d['refused'][status]:,}" for status in ("429", "503")),
                f"{d['otherwise']:,}",
                f"{refusal.p50:.0f} / {refusal.p99:.0f}" if refusal else "–",
                f"{health.p50:.0f} / **{health.p99:.0f}** / {health.max:.0f}" if health else "–",
                d["health_failures"],
                f"over {AFTERWARDS:.0f} s" if d["until_normal"] is None else f"{d['until_normal']:.1f} s",
            ]
        )
    return report.table(header, rows)


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--clients", type=int, help="that flood (default 10,000)")
    parser.add_argument("--seconds", type=float, help="of a flood (default 12)")


BENCHMARK = Benchmark(
    name="overload",
    title="Two, five and ten times of what can be done",
    how=HOW,
    measure=measure_all,
    calibrations=calibrations.COMMON,
    add_options=add_options,
)

if __name__ == "__main__":
    session.main(BENCHMARK, __doc__)
