"""Compares this tree with an earlier revision: `python -m benchmarks.compare REVISION [--workload NAME] [--rounds 3]`.

With `--python`, the earlier revision, or this one (`HEAD`), is run by another interpreter.

Each round runs the system benchmark (`benchmarks.system`) in both trees at once, and lets them run by turns of
`--slice` seconds: while one runs, every process of the other stands still. So whatever the machine does to one it does
to the other within the second; runs of minutes one after the other differed by 30 % with the same tree on both sides.
Rates are of a tree's own time. What counts is the median of the ratios of the rounds. Exits with 1 when a run failed,
or when the ratio is under `--least`.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import datetime
import json
import platform
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

import psutil

from benchmarks.rig import machine
from benchmarks.rig.report import RESULTS
from benchmarks.rig.run import Failed
from benchmarks.workloads import WORKLOADS

ROOT = Path(__file__).parents[1]


@dataclasses.dataclass(frozen=True, slots=True)
class Round:
    """The figures of one workload in both trees. others: the part of the machine that was neither's."""

    before: dict[str, Any]
    after: dict[str, Any]
    others: float

    @property
    def is_marked(self) -> bool:
        """Others had too much of the machine for it to count."""
        return self.others > machine.MARK

    @property
    def ratio(self) -> float:
        """Messages a second after to before."""
        return float(self.after["rate"] / self.before["rate"])


@dataclasses.dataclass(frozen=True, slots=True)
class Tree:
    """Where a revision is, and the interpreter that runs it, which has what it depends on."""

    where: Path
    python: str = sys.executable


class Run:
    """One run of the system benchmark that belongs to a tree."""

    def __init__(self, tree: Tree, workload: str, messages: int, output: Path) -> None:
        self._about = f"{workload} in {tree.where}"
        self._output = output
        self._log = output / "log"
        command = [tree.python, "-m", "benchmarks.system", "--workload", workload]
        command += ["--messages", str(messages), "--output", str(output)]
        with self._log.open("w") as log:
            self._process = subprocess.Popen(command, cwd=tree.where, stdout=log, stderr=subprocess.STDOUT)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.signal(signal.SIGCONT)
        if not self.is_over:
            # It stops what it started.
            self._process.send_signal(signal.SIGINT)
            self._process.wait()

    @property
    def is_over(self) -> bool:
        return self._process.poll() is not None

    def signal(self, number: int) -> None:
        """To every process of it."""
        with contextlib.suppress(psutil.NoSuchProcess):
            root = psutil.Process(self._process.pid)
            for process in (root, *root.children(recursive=True)):
                with contextlib.suppress(psutil.NoSuchProcess):
                    process.send_signal(number)

    def figures(self) -> dict[str, Any]:
        """What it measured. Raises `Failed`."""
        files = list(self._output.glob("*.json"))
        if self._process.returncode or not files:
            raise Failed(f"{self._about}: {self._log.read_text()[-2000:]}")
        found: dict[str, Any] = json.loads(files[0].read_text())["runs"][0]
        return found


def take_turns(runs: Sequence[Run], seconds: float) -> None:
    """Let one after the other run for so long, the others standing still, until all are over.

    Whoever is over keeps its turns, in which nothing runs, so that the time of the others counts as before.
    """
    for run in runs:
        run.signal(signal.SIGSTOP)
    while not all(run.is_over for run in runs):
        for run in runs:
            run.signal(signal.SIGCONT)
            time.sleep(seconds)
            run.signal(signal.SIGSTOP)


def run(revision: str, workload: str, rounds: int, *, messages: int, seconds: float, python: str) -> list[Round]:
    """All rounds, by turns of so many seconds. Raises `Failed`, and `CalledProcessError` for an unknown revision.

    python: the interpreter of the revision.
    """
    found: list[Round] = []
    with tempfile.TemporaryDirectory(prefix="tidings-before-") as directory:
        tree = Path(directory) / "tree"
        subprocess.run(["git", "worktree", "add", "--quiet", "--detach", str(tree), revision], cwd=ROOT, check=True)
        try:
            for number in range(rounds):
                found.append(_round(Tree(tree, python), workload, messages, seconds))
                print(f"round {number + 1}: {_line(found[-1])}", flush=True)
        finally:
            subprocess.run(["git", "worktree", "remove", "--force", str(tree)], cwd=ROOT, check=True)
    return found


def _round(earlier: Tree, workload: str, messages: int, seconds: float) -> Round:
    with tempfile.TemporaryDirectory(prefix="tidings-compare-") as directory, contextlib.ExitStack() as stack:
        runs = []
        for name, tree in (("before", earlier), ("after", Tree(ROOT))):
            output = Path(directory) / name
            output.mkdir()
            runs.append(stack.enter_context(Run(tree, workload, messages, output)))
        began = machine.read(time.monotonic())
        take_turns(runs, seconds)
        shares = machine.shares(began, machine.read(time.monotonic()))
        before, after = (run.figures() for run in runs)
    for figures in (before, after):
        # Half of the time was the other's.
        figures["rate"] *= len(runs)
    return Round(before, after, shares.others)


def _line(one: Round) -> str:
    said = f"{one.before['rate']:.0f}/s before, {one.after['rate']:.0f}/s after, ratio {one.ratio:.2f}"
    return said + (f"; MARKED: {one.others:.0%} of the machine went to others" if one.is_marked else "")


def median(rounds: Sequence[Round]) -> float | None:
    """Of the ratios of those that are not marked; `None` when all are."""
    found = [one.ratio for one in rounds if not one.is_marked]
    return statistics.median(found) if found else None


def write(before: str, workload: str, rounds: Sequence[Round], *, seconds: float) -> Path:
    """Add the figures to `results/<date>-compare.md`. before: what this tree was compared with."""
    path = RESULTS / f"{datetime.date.today().isoformat()}-compare.md"
    title = next(w.title for w in WORKLOADS if w.name == workload)
    ratio = median(rounds)
    said = f"**{ratio:.2f}**" if ratio is not None else "none, since every round is marked"
    count = rounds[0].after["messages"]
    lines = [
        f"## {title}: this tree against {before}",
        "",
        f"Median of the ratios: {said}. Each round is both trees at once, by turns of {seconds:g} s, with rates of "
        f"their own time; {count} messages a run, their three callbacks reconciled. Rounds marked with † do not count, "
        "since others had over 5 % of the machine.",
        "",
        "| round | before, messages/s | after | ratio | CPU of webapp, µs a message | CPU of coreapp | CPU of all |",
        "|--:|--:|--:|--:|--:|--:|--:|",
    ]
    for number, one in enumerate(rounds, 1):
        before, after = one.before["cpu_us"], one.after["cpu_us"]
        cpu = [f"{before.get(name, 0)} → {after.get(name, 0)}" for name in ("webapp", "coreapp")]
        lines.append(
            f"| {number}{' †' * one.is_marked} | {one.before['rate']:.0f} | {one.after['rate']:.0f} | {one.ratio:.2f} "
            f"| {cpu[0]} | {cpu[1]} "
            f"| {sum(before.values())} → {sum(after.values())} |"
        )
    heading = "" if path.exists() else f"# Against earlier revisions, {datetime.date.today().isoformat()}\n"
    with path.open("a") as file:
        file.write("\n".join([heading, *lines, ""]))
    return path


def _describe(revision: str) -> str:
    command = ["git", "log", "-1", "--format=%h (%s)", revision]
    return subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout.strip()


def _interpreters(python: str) -> str:
    """Nothing when both sides have the same."""
    if python == sys.executable:
        return ""
    version = subprocess.run([python, "-V"], check=True, capture_output=True, text=True).stdout.strip()
    return f" with {version} rather than Python {platform.python_version()}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("revision", help="the earlier one, as git knows it")
    parser.add_argument("--workload", default="warm64", choices=[workload.name for workload in WORKLOADS])
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
        )
    except Failed as failed:
        sys.exit(f"FAILED: {failed}")
    ratio = median(rounds)
    before = _describe(options.revision) + _interpreters(options.python)
    path = write(before, options.workload, rounds, seconds=options.slice)
    if ratio is None:
        sys.exit(f"no ratio: others took over {machine.MARK:.0%} of the machine in every round; written: {path.name}")
    print(f"median of the ratios {ratio:.2f}; written: {path.name}")
    if ratio < options.least:
        sys.exit(f"the ratio is under {options.least}")


if __name__ == "__main__":
    main()
