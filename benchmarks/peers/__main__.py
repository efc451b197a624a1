"""Measure Tidings and other software on the same work, alternating: `benchmarks/peers/README.md`."""

from __future__ import annotations

import argparse
import asyncio
import functools
import itertools
from collections.abc import Sequence
from pathlib import Path

from benchmarks.calibrations import echo, mysqlslap, webhook_post
from benchmarks.peers import delivery, install, jobs, readings, report
from benchmarks.rig import run, session
from benchmarks.rig.run import Run
from benchmarks.rig.session import Benchmark, Session, Variant

# Seconds of load in each run.
SECONDS, QUICK = 3.0, 1.0


def variants(current: Session) -> dict[str, list[Variant]]:
    """Return all runs by part, Tidings first."""
    options, numbers = current.options, itertools.count(1)
    seconds = QUICK if options.quick else options.seconds
    samples = 1 if options.quick else delivery.SAMPLES

    def fresh() -> Path:
        directory = current.directory / f"run{next(numbers)}"
        directory.mkdir()
        return directory

    async def queue(one: jobs.Queue, posts: bool) -> Run:
        return await jobs.measure(one, seconds, fresh(), posts=posts)

    async def apart(one: jobs.Queue) -> Run:
        return await jobs.measure_apart(one, seconds, fresh())

    async def way(one: delivery.DeliveryPath) -> Run:
        return await delivery.measure(one, seconds, fresh())

    async def table(one: delivery.DeliveryPath) -> Run:
        return await delivery.measure_table(one, fresh(), samples)

    return {
        "jobs": [Variant(f"jobs-{one.name}", one.title, functools.partial(queue, one, False)) for one in jobs.JOBS],
        "apart": [
            Variant(f"apart-{one.name}", f"{one.title}, two processes", functools.partial(apart, one))
            for one in jobs.JOBS
        ],
        "webhooks": [
            Variant(f"webhooks-{one.name}", one.title, functools.partial(queue, one, True)) for one in jobs.WEBHOOKS
        ],
        "delivery": [Variant(f"delivery-{one.name}", one.title, functools.partial(way, one)) for one in delivery.WAYS],
        "table": [
            Variant(f"table-{one.name}", f"table: {one.title}", functools.partial(table, one))
            for one in delivery.TABLE_WAYS
        ],
    }


# Names of parts, then of runs.
NAMES = [
    *report.HEADS,
    *(f"jobs-{one.name}" for one in jobs.JOBS),
    *(f"apart-{one.name}" for one in jobs.JOBS),
    *(f"webhooks-{one.name}" for one in jobs.WEBHOOKS),
    *(f"delivery-{one.name}" for one in delivery.WAYS),
    *(f"table-{one.name}" for one in delivery.TABLE_WAYS),
]


async def measure(current: Session) -> None:
    """Install missing software, then measure part after part."""
    await asyncio.to_thread(install.install, with_mosquitto=_needs_mosquitto(current))
    await current.database()
    current.report.machine = {**current.report.machine, **report.versions()}
    options = current.options
    for part, every in variants(current).items():
        wanted = [one for one in every if current.is_wanted(part) or current.is_wanted(one.name)]
        if not wanted:
            continue
        # The cells of the table are means already.
        if part == "table" or len(wanted) == 1:
            for one in wanted:
                await current.once(one)
        else:
            await current.alternate(*wanted, rounds=1 if options.quick else options.rounds)
    current.report.notes += notes(current.report.runs, current)


def _needs_mosquitto(current: Session) -> bool:
    names = ("delivery", "table", *(name for name in NAMES if name.startswith(("delivery-", "table-"))))
    return any(current.is_wanted(name) for name in names)


def notes(runs: Sequence[Run], current: Session) -> list[str]:
    """Return the notes of the report for each part."""
    said = []
    for part in report.HEADS:
        names = dict.fromkeys(one.name for one in runs if report.part_of(one) == part)
        if not names:
            continue
        middle = [run.median([one for one in runs if one.name == name]) for name in names]
        said.append(report.part(part, middle, current.report.ratios))
        if part != "table" and report.is_ours(middle[0].name):
            said.append(readings.of(part, middle))
    return [*said, report.NOT_TO_BE_HAD]


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--rounds", type=int, default=2, help="of each, by turns (%(default)s)")
    parser.add_argument("--seconds", type=float, default=SECONDS, help="of load in each run (%(default)s)")


BENCHMARK = Benchmark(
    name="peers",
    title="Beside others",
    how=report.HOW,
    measure=measure,
    names=NAMES,
    calibrations=(mysqlslap.calibrate, webhook_post.calibrate, echo.calibrate),
    add_options=add_options,
)

if __name__ == "__main__":
    session.main(BENCHMARK, __doc__)
