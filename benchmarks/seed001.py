"""The grid of an API gateway's performance report: `python -m benchmarks.seed001 [--quick] [--long] [--seconds 8]`.

Concurrent users, each of which sends, waits for the response and sends again at once, by 50 B, 1 KiB, 10 KiB and 100
KiB, with a webhook that takes 0, 30, 500 and 1,000 ms per response, in two shapes: pass-through (a text; longer than a
text may be, a document) and transformation (a template with header, body and buttons). The short form has the lines and
columns of the grid that the report's own charts show and takes under 15 minutes; `--long` measures the whole grid.
`--reduced` measures 100 of its 160 cells for 2 s each: all cells of texts, and those of documents with a webhook delay
of 30 ms. `--minutes` starts no cell later than that.
"""

from __future__ import annotations

import argparse
import functools
import itertools
import math
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from benchmarks import calibrations
from benchmarks.rig import contents, messages, plots, report, session, stage
from benchmarks.rig.run import Run
from benchmarks.rig.session import Benchmark, Session, Variant
from benchmarks.rig.stage import Scene, Stage
from harness import client
from harness.client import Message
from harness.sink_process import SinkProcess

USERS = (100, 200, 300, 1000, 2000)
SIZES = {"50B": 50, "1KiB": 1024, "10KiB": 10_240, "100KiB": 102_400}
DELAYS = (0, 30, 500, 1000)
SHAPES: dict[str, Callable[[str, str, int], Message]] = {
    "pass": contents.sized,
    "transform": contents.sized_template,
}
TITLES = {"pass": "pass-through", "transform": "transformation"}
# The "average user" of the report.
USUAL_USERS, USUAL_SIZE, USUAL_DELAY = 300, "1KiB", 30
ROBOTS = 1000
SHORT_SECONDS, LONG_SECONDS, REDUCED_SECONDS, QUICK_SECONDS = 6.0, 60.0, 2.0, 2.0
# The maximum of concurrent uploads, and space in the network for all files.
ENVIRONMENT = {
    "TIDINGS_MAX_UPLOADS": "1000",
    "TIDINGS_NETWORK_BLOB_RATE": "0",
    "TIDINGS_NETWORK_BLOB_QUOTA_MB": "40960",
    "TIDINGS_NETWORK_BLOB_DEVICE_QUOTA_MB": "40960",
    # All users connect at once, and from one address.
    "TIDINGS_HTTP_STRANGERS": "5000",
    "TIDINGS_HTTP_STRANGERS_EACH": "5000",
    "TIDINGS_HTTP_STRANGERS_RATE": "0",
    "TIDINGS_HTTP_STRANGERS_RATE_EACH": "0",
}
HOW = """\
Taken by `make bench-seed001` (`python -m benchmarks.seed001`). Each user sends, waits for the 201 and sends again at
once, without a pause, for the seconds of the cell; 1,000 recipients whose sessions are settled. *Pass-through* is a
text of the size; 10 KiB and 100 KiB are more than a text may have (4,096 characters) and go as documents, whose
upload and message are one sample. *Transformation* is a template with header, body and two buttons that is filled in;
beyond 1 KiB its header is a document. The *delay* is the webhook's before each response. Unlike a gateway's backend,
the webhook is not waited for by the request: callbacks queue, at most 24 at a time. When the time of a cell is over
the webhook responds at once, so that everything can be awaited and reconciled; `a second` in the first table is of
messages with all three callbacks until then, `samples/s` below of requests answered in the cell's time. Errors are
refusals (429 and 503), which the user tries again after 0.1 s. The reduced grid (`--reduced`) has 100 of the 160 cells,
for 2 s each: all cells of texts, and those of documents with a webhook delay of 30 ms, all on one installation."""


class Cell:
    """Cell of the grid."""

    def __init__(self, shape: str, users: int, size: str, delay: int) -> None:
        """Make a cell.

        delay: response time of the webhook, milliseconds
        """
        self.shape, self.users, self.size, self.delay = shape, users, size, delay

    @property
    def name(self) -> str:
        return f"{self.shape}-{self.users}-{self.size}-{self.delay}ms"

    @property
    def title(self) -> str:
        return f"{TITLES[self.shape]}, {self.users:,} users, {self.size}, webhook {self.delay} ms"

    def work(self, until: float, numbers: Sequence[str]) -> Iterator[Message]:
        """Yield messages until the time `until` of `time.monotonic`."""
        make, size = SHAPES[self.shape], SIZES[self.size]
        for i in itertools.count():
            if time.monotonic() >= until:
                return
            yield make(numbers[i % len(numbers)], f"{self.name}-{i}", size)


def cells(*, long: bool, quick: bool) -> list[Cell]:
    """Return the whole grid, or for each shape the charts' lines through its usual cell."""
    if quick:
        return [Cell(shape, 100, size, 30) for shape in SHAPES for size in ("1KiB", "10KiB")]
    if long:
        return list(itertools.starmap(Cell, itertools.product(SHAPES, USERS, SIZES, DELAYS)))
    found = []
    for shape in SHAPES:
        places = [(users, USUAL_SIZE, USUAL_DELAY) for users in USERS]
        places += [(USUAL_USERS, size, USUAL_DELAY) for size in SIZES]
        places += [(USUAL_USERS, USUAL_SIZE, delay) for delay in DELAYS]
        found += [Cell(shape, *place) for place in dict.fromkeys(places)]
    return found


def reduced_cells() -> list[Cell]:
    """Return the cells of the whole grid without those of documents at other webhook delays than the usual one."""
    return [cell for cell in cells(long=True, quick=False) if not has_file(cell) or cell.delay == USUAL_DELAY]


async def measure_cell(scene: Scene, cell: Cell, seconds: float) -> Run:
    """Measure one cell. Raises `RunFailed` and others."""
    numbers = stage.recipients(ROBOTS, ROBOTS)
    await scene.sink.respond_with(200, cell.delay / 1000)
    async with messages.measured(scene, drain=functools.partial(_respond_at_once, scene.sink)) as found:
        work = cell.work(time.monotonic() + seconds, numbers)
        await client.closed_loop(scene.business, work, cell.users, patient=True, load=found.load)
    load, refused = found.load, found.load.refused.total()
    samples = len(load.sent) + refused
    garbage = {name: stopped.seconds / found.samples.seconds for name, stopped in found.samples.gc.items()}
    details = {
        "samples": samples,
        "errors": refused / samples,
        "samples_per_second": len(load.sent) / found.sent_in,
        "received_kb": load.received / found.sent_in / 1000,
        "sent_kb": load.written / found.sent_in / 1000,
        "gc_throughput": {name: round(100 * (1 - part), 2) for name, part in garbage.items()},
    }
    place = {"shape": cell.shape, "users": cell.users, "size": cell.size, "delay_ms": cell.delay}
    return found.run(cell.name, cell.title, parameters=place, details=details)


async def _respond_at_once(sink: SinkProcess) -> None:
    await sink.respond_with(200)


def has_file(cell: Cell) -> bool:
    """Return whether the messages of a cell carry files, which take gigabytes per minute."""
    return bool(SHAPES[cell.shape]("1", "a", SIZES[cell.size]).file)


def seconds_of(options: argparse.Namespace) -> float:
    """Return the duration of a cell."""
    if options.seconds:
        return float(options.seconds)
    if options.quick:
        return QUICK_SECONDS
    return REDUCED_SECONDS if options.reduced else LONG_SECONDS if options.long else SHORT_SECONDS


async def measure_group(
    current: Session, prepared: Stage, group: Sequence[Cell], seconds: float, until: float
) -> Sequence[Cell]:
    """Measure cells on a fresh installation, and those after a failed cell on another; return the cells left out.

    until: time of `time.monotonic` from which no cell is started
    """
    left, name = list(group), group[0].name if len(group) == 1 else "grid"
    while left and time.monotonic() < until:
        async with prepared.performance(name) as scene:
            await messages.warm_up(scene, stage.recipients(ROBOTS, ROBOTS))
            while left and time.monotonic() < until:
                cell = left.pop(0)
                measured = functools.partial(measure_cell, scene, cell, seconds)
                if await current.once(Variant(cell.name, cell.title, measured)) is None:
                    # The backlog of a failed cell would disturb the next.
                    break
    return left


async def measure(current: Session) -> None:
    """Measure cells of texts one after the other on one installation, and each cell of files on a fresh one."""
    options = current.options
    offered = (
        reduced_cells() if options.reduced else cells(long=options.long or bool(options.only), quick=options.quick)
    )
    chosen = sorted((cell for cell in offered if current.is_wanted(cell.name)), key=has_file)
    until = time.monotonic() + options.minutes * 60 if options.minutes else math.inf
    left: list[Cell] = []
    async with stage.prepared(current, robots=ROBOTS, environment=ENVIRONMENT) as prepared:
        # A cell of the whole grid takes gigabytes if it has files.
        apart = has_file if not options.reduced else lambda cell: False
        for _, group in itertools.groupby(chosen, lambda cell: cell.name if apart(cell) else ""):
            left += await measure_group(current, prepared, list(group), seconds_of(options), until)
    if left:
        said = f"{len(left)} cells were not measured, because {options.minutes:g} minutes were over"
        current.report.notes.append(f"{said}: {', '.join(cell.name for cell in left)}.")
    runs = current.report.medians()
    current.report.notes += ["## The grid, in the report's own columns", "\n".join(grid(runs)), NOTES]
    current.report.drawings["users"] = functools.partial(draw_users, runs)


NOTES = """\
The report's own figures were of 4-core machines for the gateway alone, clients, backend and database on others; they
are in its charts, which the page has as pictures: with 1 KiB and a backend of 30 ms an average under 100 ms up to 300
users, percentiles under 300 ms there, and 1.0 to 1.6 s for the slowest hundredth of 1,000 and 2,000 users of its
transformation. It did not test 100 KiB with its transformation, and had errors with 100 KiB at 1,000 and 2,000
users."""


def grid(runs: Sequence[Run]) -> list[str]:
    """Return a table with a line per cell."""
    header = [
        "shape",
        "size",
        "users",
        "webhook, ms",
        "samples",
        "error %",
        "average, ms",
        "min",
        "90 %",
        "95 %",
        "99 %",
    ]
    header += ["max", "samples/s", "received KB/s", "sent KB/s", "load", "GC throughput: webapp, coreapp"]
    rows = []
    for run in runs:
        place, found = run.parameters, run.details
        latency = run.latencies["POST /v1/messages"]
        collected = ", ".join(f"{found['gc_throughput'].get(name, 100.0):.2f} %" for name in ("webapp", "coreapp"))
        rows.append(
            [
                TITLES[place["shape"]] + (" †" if run.is_marked else ""),
                place["size"],
                f"{place['users']:,}",
                place["delay_ms"],
                f"{found['samples']:,}",
                f"{found['errors']:.2%}",
                *(f"{v:.0f}" for v in (latency.mean, latency.min, latency.p90, latency.p95, latency.p99, latency.max)),
                f"**{found['samples_per_second']:,.0f}**",
                f"{found['received_kb']:,.0f}",
                f"{found['sent_kb']:,.0f}",
                f"{run.samples.load:.1f}",
                collected,
            ]
        )
    return report.table(header, rows, words=2)


def draw_users(runs: Sequence[Run], path: Path) -> None:
    """Draw throughput and average response time by users, 1 KiB and 30 ms, as in the report's charts."""
    lines: dict[str, list[tuple[float, float, float]]] = {}
    for run in runs:
        place = run.parameters
        if (place["size"], place["delay_ms"]) == (USUAL_SIZE, USUAL_DELAY):
            point = (place["users"], run.details["samples_per_second"], run.latencies["POST /v1/messages"].mean)
            lines.setdefault(TITLES[place["shape"]], []).append(point)
    plots.draw_lines(lines, "concurrent users", ("samples a second", "average response, ms"), path)


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--long", action="store_true", help="the whole grid, a minute each (4 hours and more)")
    parser.add_argument("--reduced", action="store_true", help=f"100 cells, {REDUCED_SECONDS:g} s each (15 minutes)")
    parser.add_argument("--minutes", type=float, help="start no cell later than this (default: no limit)")
    parser.add_argument(
        "--seconds", type=float, help=f"a cell (default {SHORT_SECONDS:g}, with --long {LONG_SECONDS:g})"
    )


BENCHMARK = Benchmark(
    name="seed001",
    title="Concurrent users by message size and webhook delay",
    how=HOW,
    measure=measure,
    names=list(dict.fromkeys(cell.name for long in (False, True) for cell in cells(long=long, quick=False))),
    calibrations=calibrations.COMMON,
    add_options=add_options,
    is_brief=True,
)

if __name__ == "__main__":
    session.main(BENCHMARK, __doc__)
