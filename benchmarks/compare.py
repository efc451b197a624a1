"""Compare this tree with an earlier revision: `python -m benchmarks.compare REVISION [--workload NAME] [--rounds 3]`.

With `--python`, the earlier revision, or this one (`HEAD`), runs on another interpreter; with `--before`, it runs
another workload, which this revision may have replaced.

Each round runs the system benchmark (`benchmarks.system`) in both trees at once and alternates between them every
`--slice` seconds: while one runs, every process of the other is stopped. So other load on the machine affects both
within the same second. Runs of minutes one after the other differed by 30 % with the same tree on both sides. Rates
count a tree's running time only. The result is the median of the rounds' ratios. Exits with 1 when a run failed, or
when the ratio is below `--least`.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import datetime
import json
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import psutil

from benchmarks.rig import machine
from benchmarks.rig.report import RESULTS
from benchmarks.rig.run import RunFailed
from benchmarks.workloads import WORKLOADS
from tidings.observability import interpreter

ROOT = Path(__file__).parents[1]


@dataclasses.dataclass(frozen=True, slots=True)
class Round:
    """Figures of one workload in both trees."""

    before: dict[str, Any]
    after: dict[str, Any]
    others: float  # fraction of the machine's CPU used by other programs

    @property
    def is_marked(self) -> bool:
        """Return whether other programs used too much of the machine for the round to count."""
        return self.others > machine.MARK

    @property
    def ratio(self) -> float:
        """Return messages per second after, relative to before."""
        return float(self.after["rate"] / self.before["rate"])


@dataclasses.dataclass(frozen=True, slots=True)
class Tree:
    """Checkout of a revision, the interpreter that runs it, with its dependencies installed, and the workload."""

    where: Path
    workload: str
    python: str = sys.executable


class Run:
    """One run of a tree's own system benchmark."""

    def __init__(self, tree: Tree, messages: int, output: Path) -> None:
        self._about = f"{tree.workload} in {tree.where}"
        self._output = output
        self._log = output / "log"
        command = [tree.python, "-m", "benchmarks.system", "--workload", tree.workload]
        command += ["--messages", str(messages), "--output", str(output)]
        with self._log.open("w") as log:
            self._process = subprocess.Popen(command, cwd=tree.where, stdout=log, stderr=subprocess.STDOUT)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.signal(signal.SIGCONT)
        if not self.is_over:
            # The benchmark stops the processes that it started.
            self._process.send_signal(signal.SIGINT)
            self._process.wait()

    @property
    def is_over(self) -> bool:
        return self._process.poll() is not None

    def signal(self, number: int) -> None:
        """Send a signal to every process of the run."""
        with contextlib.suppress(psutil.NoSuchProcess):
            root = psutil.Process(self._process.pid)
            for process in (root, *root.children(recursive=True)):
                with contextlib.suppress(psutil.NoSuchProcess):
                    process.send_signal(number)

    def figures(self) -> dict[str, Any]:
        """Return the measured figures. Raises `RunFailed`."""
        files = list(self._output.glob("*.json"))
        if self._process.returncode or not files:
            raise RunFailed(f"{self._about}: {self._log.read_text()[-2000:]}")
        found: dict[str, Any] = json.loads(files[0].read_text())["runs"][0]
        return found


def alternate(runs: Sequence[Run], seconds: float) -> None:
    """Run one after the other for `seconds` each, with the others stopped, until all are over.

    A finished run keeps its time slices, in which nothing runs, so that the other runs' time is counted as before.
    """
    for run in runs:
        run.signal(signal.SIGSTOP)
    while not all(run.is_over for run in runs):
        for run in runs:
            run.signal(signal.SIGCONT)
            time.sleep(seconds)
            run.signal(signal.SIGSTOP)


def run(
    revision: str, workload: str, rounds: int, *, messages: int, seconds: float, python: str, before: str
) -> list[Round]:
    """Measure all rounds. Raises `RunFailed`, and `CalledProcessError` for an unknown revision.

    seconds: length of a time slice
    python:  interpreter of the revision
    before:  workload of the revision
    """
    found: list[Round] = []
    with tempfile.TemporaryDirectory(prefix="tidings-before-") as directory:
        tree = Path(directory) / "tree"
        subprocess.run(["git", "worktree", "add", "--quiet", "--detach", str(tree), revision], cwd=ROOT, check=True)
        try:
            for number in range(rounds):
                found.append(_round((Tree(tree, before, python), Tree(ROOT, workload)), messages, seconds))
                print(f"round {number + 1}: {_line(found[-1])}", flush=True)
        finally:
            subprocess.run(["git", "worktree", "remove", "--force", str(tree)], cwd=ROOT, check=True)
    return found


def _round(trees: tuple[Tree, Tree], messages: int, seconds: float) -> Round:
    with tempfile.TemporaryDirectory(prefix="tidings-compare-") as directory, contextlib.ExitStack() as stack:
        runs = []
        for name, tree in zip(("before", "after"), trees, strict=True):
            output = Path(directory) / name
            output.mkdir()
            runs.append(stack.enter_context(Run(tree, messages, output)))
        began = machine.read(time.monotonic())
        alternate(runs, seconds)
        shares = machine.shares(began, machine.read(time.monotonic()))
        before, after = (run.figures() for run in runs)
    for figures in (before, after):
        # Each tree ran half of the time.
        figures["rate"] *= len(runs)
    return Round(before, after, shares.others)


def _line(one: Round) -> str:
    said = f"{one.before['rate']:.0f}/s before, {one.after['rate']:.0f}/s after, ratio {one.ratio:.2f}"
    return said + (f"; MARKED: {one.others:.0%} of the machine went to others" if one.is_marked else "")


def median(rounds: Sequence[Round]) -> float | None:
    """Return the median ratio of the unmarked rounds; None when all are marked."""
    found = [one.ratio for one in rounds if not one.is_marked]
    return statistics.median(found) if found else None


def write(before: str, workload: str, rounds: Sequence[Round], *, seconds: float) -> Path:
    """Add the figures to `results/<date>-compare.md`.

    before:  description of the earlier revision
    seconds: length of a time slice
    """
    path = RESULTS / f"{datetime.date.today().isoformat()}-compare.md"
    ratio = median(rounds)
    said = f"**{ratio:.2f}**" if ratio is not None else "none, since every round is marked"
    count = rounds[0].after["messages"]
    lines = [
        f"## {_title(workload)}: {machine.commit()} against {before}",
        "",
        f"Median of the ratios: {said}. Each round is both trees at once, by turns of {seconds:g} s, with rates of "
        f"their own time; {count} messages a run, their three callbacks reconciled. Rounds marked with † do not count, "
        "since others had over 5 % of the machine.",
        "",
        "| round | before, messages/s | after | ratio | CPU of webapp, µs a message | CPU of coreapp "
        "| CPU of webapp, coreapp and network | CPU of all |",
        "|--:|--:|--:|--:|--:|--:|--:|--:|",
    ]
    for number, one in enumerate(rounds, 1):
        earlier, later = one.before["cpu_us"], one.after["cpu_us"]
        cpu = [f"{earlier.get(name, 0)} → {later.get(name, 0)}" for name in ("webapp", "coreapp")]
        lines.append(
            f"| {number}{' †' * one.is_marked} | {one.before['rate']:.0f} | {one.after['rate']:.0f} | {one.ratio:.2f} "
            f"| {cpu[0]} | {cpu[1]} | {_product(earlier)} → {_product(later)} "
            f"| {sum(earlier.values())} → {sum(later.values())} |"
        )
    heading = "" if path.exists() else f"# Against earlier revisions, {datetime.date.today().isoformat()}\n"
    with path.open("a") as file:
        file.write("\n".join([heading, *lines, ""]))
    return path


def _product(cpu: Mapping[str, int]) -> int:
    """Return the CPU of Webapp, Coreapp and network together."""
    return sum(cpu.get(name, 0) for name in ("webapp", "coreapp", "network"))


def _describe(options: argparse.Namespace) -> str:
    """Describe the earlier revision, its workload if it is another one, and the interpreters if they differ."""
    command = ["git", "log", "-1", "--format=%h (%s)", options.revision]
    found = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout.strip()
    if options.before:
        found += f", {_title(options.before)},"
    return found + _interpreters(options.python)


def _title(workload: str) -> str:
    return next(one.title for one in WORKLOADS if one.name == workload)


def _interpreters(python: str) -> str:
    """Describe the interpreters; empty when both sides use the same one."""
    if python == sys.executable:
        return ""
    command = [python, "-c", "from tidings.observability import interpreter; print(interpreter.read())"]
    other = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout.strip()
    return f" with {other} rather than {interpreter.read()}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("revision", help="the earlier one, as git knows it")
    parser.add_argument("--workload", default="warm64", choices=[workload.name for workload in WORKLOADS])
    parser.add_argument(
        "--before", choices=[workload.name for workload in WORKLOADS], help="the earlier one's workload"
    )
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--messages", type=int, default=10_000, help="a run (default 10,000)")
    parser.add_argument("--slice", type=float, default=0.5, help="seconds of a turn (default 0.5)")
    parser.add_argument("--python", default=sys.executable, help="the interpreter of the earlier one (default this)")
    parser.add_argument("--least", type=float, default=0.0, help="the ratio below which this is a failure")
    options = parser.parse_args()
    try:
        rounds = run(
            options.revision,
            options.workload,
            options.rounds,
            messages=options.messages,
            seconds=options.slice,
            python=options.python,
            before=options.before or options.workload,
        )
    except RunFailed as failed:
        sys.exit(f"FAILED: {failed}")
    ratio = median(rounds)
    before = _describe(options)
    path = write(before, options.workload, rounds, seconds=options.slice)
    if ratio is None:
        sys.exit(f"no ratio: others took over {machine.MARK:.0%} of the machine in every round; written: {path.name}")
    print(f"median of the ratios {ratio:.2f}; written: {path.name}")
    if ratio < options.least:
        sys.exit(f"the ratio is under {options.least}")


if __name__ == "__main__":
    main()
