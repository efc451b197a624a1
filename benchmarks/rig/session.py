"""Execution of one benchmark, from command line to report: single or alternating runs, calibrations, failures."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import dataclasses
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

import uvloop

from benchmarks.rig import machine, report, run
from benchmarks.rig.calibration import Calibrate, Calibrated
from benchmarks.rig.report import Report
from benchmarks.rig.run import Run, RunFailed
from harness import database_server
from harness.client import UnexpectedResponse
from harness.control import ChildFailed
from harness.http_connection import NoResponse
from harness.mariadb import MariaDB
from harness.processes import ProcessEnded

BUFFER_POOL_MB = 256
# Options that do not make a benchmark partial.
NEVER_SHORTENS = ("output", "keep_logs", "profile", "long", "again")
# Errors of a run that are caused by the measured system rather than by this program.
FAILURES = (RunFailed, ProcessEnded, ChildFailed, OSError, NoResponse, UnexpectedResponse, ExceptionGroup)


@dataclasses.dataclass(frozen=True, slots=True)
class Variant:
    """One kind of run."""

    name: str
    title: str
    # Measures once, from a fresh state to reconciled figures. Raises one of `FAILURES`.
    measure: Callable[[], Awaitable[Run]]


class Session:
    """Resources of a benchmark: a directory, a private MariaDB with durable commits, and the results so far."""

    def __init__(self, found: Report, options: argparse.Namespace, directory: Path) -> None:
        self.report = found
        self.options = options
        self.directory = directory
        self.failures = 0
        self._mariadb: MariaDB | None = None

    async def database(self) -> MariaDB:
        """Return the database server, started at the first call."""
        if self._mariadb is None:
            self._mariadb = database_server.make(flush_log=1, buffer_pool_mb=BUFFER_POOL_MB)
            await asyncio.to_thread(self._mariadb.start)
            self.report.machine = await asyncio.to_thread(machine.describe, self._mariadb)
        return self._mariadb

    def is_wanted(self, name: str) -> bool:
        """Return whether the command line selects runs of this name; all, if it selects none."""
        return not self.options.only or name in self.options.only

    async def once(self, variant: Variant, *, again: bool = True) -> Run | None:
        """Measure one run and print its progress; None when it failed, which sets the exit status.

        again: whether to repeat the run while other programs use too much of the machine, as often as the command line
            allows; the run with the least CPU of other programs counts
        """
        taken: list[Run] = []
        for _ in range(1 + (self.options.again if again else 0)):
            print(f"{variant.title} ...", flush=True)
            try:
                found = await variant.measure()
            except FAILURES as error:
                self.failures += 1
                print(f"FAILED {variant.name}: {reason(error)}", flush=True)
                return None
            taken.append(found)
            print(report.one_line(found), flush=True)
            if not found.is_marked:
                break
        best = min(taken, key=lambda one: one.samples.shares.others)
        self.report.runs.append(best)
        if len(taken) > 1:
            others = ", ".join(f"{one.samples.shares.others:.0%}" for one in taken)
            self.report.notes.append(
                f"*{best.title}* was taken {len(taken)} times; others had {others} of the machine."
            )
        return best

    async def alternate(self, base: Variant, *others: Variant, rounds: int) -> None:
        """Alternate the runs, round by round, so that other load affects all of them; add ratios to the base."""
        found: dict[str, list[Run | None]] = {variant.name: [] for variant in (base, *others)}
        for number in range(rounds):
            print(f"round {number + 1} of {rounds}", flush=True)
            for variant in (base, *others):
                found[variant.name].append(await self.once(variant))
        for other in others:
            pairs = list(zip(found[base.name], found[other.name], strict=True))
            ratio = run.ratio(other.name, base.name, pairs)
            self.report.ratios.append(ratio)
            said = f"{ratio.value:.2f}" if ratio.value is not None else f"none, {ratio.why}"
            print(f"ratio of {other.name} to {base.name}: {said}", flush=True)

    async def calibrate(self, calibrations: Sequence[Calibrate]) -> None:
        """Take each calibration again; results of the same name are combined."""
        for calibrate in calibrations:
            before = await asyncio.to_thread(machine.read, time.monotonic())
            found = await calibrate(self)
            shares = machine.shares(before, await asyncio.to_thread(machine.read, time.monotonic()))
            print(f"calibration: {found.name} {report.number(found.value)} {found.unit}", flush=True)
            earlier = next((one for one in self.report.calibrations if one.name == found.name), None)
            if earlier is None:
                self.report.calibrations.append(Calibrated(found.name, found.unit, (found.value,), shares))
                continue
            worst = max(shares, earlier.shares, key=lambda one: one.others)
            both = Calibrated(found.name, found.unit, (*earlier.values, found.value), worst)
            self.report.calibrations[self.report.calibrations.index(earlier)] = both

    def close(self) -> None:
        """Remove the database."""
        if self._mariadb is not None:
            self._mariadb.remove()


@dataclasses.dataclass(frozen=True, slots=True)
class Benchmark:
    """Definition of a benchmark."""

    name: str  # in file names of the results
    title: str
    how: str  # for the report: how the figures are taken
    measure: Callable[[Session], Awaitable[None]]  # carries out all runs, by `Session.once` and `Session.alternate`
    names: Sequence[str] = ()  # of its runs, for `--only`
    calibrations: Sequence[Calibrate] = ()  # taken before and after the runs
    # Adds options to the common ones of the command line.
    add_options: Callable[[argparse.ArgumentParser], None] = lambda parser: None
    is_brief: bool = False  # the report has only the first tables, because there are many runs


async def _carry_out(benchmark: Benchmark, options: argparse.Namespace, *, whole: bool) -> int:
    """Run a benchmark and write its report; return the exit status, 1 when a run failed.

    whole: whether no run is left out or shortened
    """
    found = Report(
        benchmark.name,
        benchmark.title,
        benchmark.how,
        whole,
        machine.describe(),
        is_brief=benchmark.is_brief,
        commit=machine.commit(),
    )
    with contextlib.ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="tidings-bench-")))
        session = Session(found, options, directory)
        stack.callback(session.close)
        await session.calibrate(benchmark.calibrations)
        try:
            await benchmark.measure(session)
        except FAILURES as error:
            session.failures += 1
            print(f"FAILED between two runs: {reason(error)}", flush=True)
        if found.runs:
            await session.calibrate(benchmark.calibrations)
    if found.runs:
        folder = Path(options.output) if options.output else report.RESULTS
        paths = report.write(found, folder, folder / "raw" if options.output else report.RAW)
        print(report.tables(found), flush=True)
        print("\n\n".join(found.notes), flush=True)
        print("written: " + ", ".join(map(str, paths)), flush=True)
    return 1 if session.failures or not found.runs else 0


def reason(error: BaseException) -> str:
    """Return why a run failed; of an exception group, the first cause."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return f"{type(error).__name__}: {error}"


def main(benchmark: Benchmark, documentation: str | None) -> None:
    """Run a benchmark as its command line requests; exit with 1 when a run failed."""
    parser = argparse.ArgumentParser(description=documentation, formatter_class=argparse.RawDescriptionHelpFormatter)
    names = ", ".join(benchmark.names)
    parser.add_argument("--quick", action="store_true", help="a few seconds a run, to see that it works")
    parser.add_argument("--only", action="append", metavar="RUN", help=f"only this run (may be repeated): {names}")
    parser.add_argument(
        "--output",
        metavar="FOLDER",
        help="for the results (default benchmarks/results; raw data: FOLDER/raw, default build/benchmarks)",
    )
    parser.add_argument("--keep-logs", metavar="FOLDER", help="copy the logs of the processes there")
    parser.add_argument(
        "--again", type=int, default=0, metavar="N", help="take a run again, up to N times, while it is marked"
    )
    parser.add_argument("--profile", action="store_true", help="sample the stacks: tables and flames of where CPU went")
    benchmark.add_options(parser)
    options = parser.parse_args()
    for name in options.only or ():
        if name not in benchmark.names:
            parser.error(f"no run {name}; there are {names}")
    chosen = vars(options).items()
    whole = all(value == parser.get_default(name) for name, value in chosen if name not in NEVER_SHORTENS)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        status = runner.run(_carry_out(benchmark, options, whole=whole))
    sys.exit(status)
