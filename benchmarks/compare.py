"""Compares this tree with an earlier revision: `python -m benchmarks.compare REVISION [--workload NAME] [--rounds 3]`.

Each round runs the system benchmark (`benchmarks.system`) in both trees, one right after the other and in turn first,
so that what else the machine does meets both. What counts is the median of the ratios of the rounds. Exits with 1 when
a run failed, or when the ratio is under `--least`.
"""

from __future__ import annotations

import argparse
import dataclasses
import datetime
import json
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.workloads import WORKLOADS

ROOT = Path(__file__).parents[1]
RESULTS = Path(__file__).parent / "results"


class Failed(Exception):
    """A run is no measurement: `str()` says why."""


@dataclasses.dataclass(frozen=True, slots=True)
class Round:
    """The figures of one workload in both trees."""

    before: dict[str, Any]
    after: dict[str, Any]

    @property
    def ratio(self) -> float:
        """Messages a second after to before."""
        return float(self.after["rate"] / self.before["rate"])


def measure(tree: Path, workload: str, messages: int) -> dict[str, Any]:
    """One run of the system benchmark that belongs to `tree`. Raises `Failed`."""
    with tempfile.TemporaryDirectory(prefix="tidings-compare-") as output:
        command = [sys.executable, "-m", "benchmarks.system", "--workload", workload]
        command += ["--messages", str(messages), "--output", output]
        done = subprocess.run(command, cwd=tree, capture_output=True, text=True)
        files = list(Path(output).glob("*.json"))
        if done.returncode or not files:
            raise Failed(f"{workload} in {tree}: {(done.stdout + done.stderr)[-2000:]}")
        figures: dict[str, Any] = json.loads(files[0].read_text())["runs"][0]
        return figures


def run(revision: str, workload: str, rounds: int, messages: int) -> list[Round]:
    """All rounds. Raises `Failed`, and `CalledProcessError` for an unknown revision."""
    found: list[Round] = []
    with tempfile.TemporaryDirectory(prefix="tidings-before-") as directory:
        tree = Path(directory) / "tree"
        subprocess.run(["git", "worktree", "add", "--quiet", "--detach", str(tree), revision], cwd=ROOT, check=True)
        try:
            for number in range(rounds):
                measured = {}
                for which in (tree, ROOT) if number % 2 == 0 else (ROOT, tree):
                    measured[which] = measure(which, workload, messages)
                found.append(Round(measured[tree], measured[ROOT]))
                print(f"round {number + 1}: {_line(found[-1])}", flush=True)
        finally:
            subprocess.run(["git", "worktree", "remove", "--force", str(tree)], cwd=ROOT, check=True)
    return found


def _line(one: Round) -> str:
    return f"{one.before['rate']:.0f}/s before, {one.after['rate']:.0f}/s after, ratio {one.ratio:.2f}"


def write(revision: str, workload: str, rounds: Sequence[Round], ratio: float) -> Path:
    """Add the figures to `results/<date>-compare.md`."""
    path = RESULTS / f"{datetime.date.today().isoformat()}-compare.md"
    title = next(w.title for w in WORKLOADS if w.name == workload)
    lines = [
        f"## {title}: this tree against {_describe(revision)}",
        "",
        f"Median of the ratios: **{ratio:.2f}**. Each round is both trees, one right after the other, in turn first; "
        f"{rounds[0].after['messages']} messages a run, all three callbacks of each reconciled.",
        "",
        "| round | before, messages/s | after | ratio | CPU of webapp, µs a message | CPU of coreapp | others' CPU |",
        "|--:|--:|--:|--:|--:|--:|--:|",
    ]
    for number, one in enumerate(rounds, 1):
        cpu = [
            f"{one.before['cpu_us'].get(name, 0)} → {one.after['cpu_us'].get(name, 0)}"
            for name in ("webapp", "coreapp")
        ]
        others = f"{one.before['others_cpu']:.0%} / {one.after['others_cpu']:.0%}"
        lines.append(
            f"| {number} | {one.before['rate']:.0f} | {one.after['rate']:.0f} | {one.ratio:.2f} | {cpu[0]} | {cpu[1]} "
            f"| {others} |"
        )
    heading = "" if path.exists() else f"# Against earlier revisions, {datetime.date.today().isoformat()}\n"
    with path.open("a") as file:
        file.write("\n".join([heading, *lines, ""]))
    return path


def _describe(revision: str) -> str:
    command = ["git", "log", "-1", "--format=%h (%s)", revision]
    return subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout.strip()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("revision", help="the earlier one, as git knows it")
    parser.add_argument("--workload", default="warm64", choices=[workload.name for workload in WORKLOADS])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--messages", type=int, default=10_000, help="a run (default 10,000)")
    parser.add_argument("--least", type=float, default=0.0, help="the ratio below which this is a failure")
    options = parser.parse_args()
    try:
        rounds = run(options.revision, options.workload, options.rounds, options.messages)
    except Failed as failed:
        sys.exit(f"FAILED: {failed}")
    ratio = statistics.median(one.ratio for one in rounds)
    path = write(options.revision, options.workload, rounds, ratio)
    print(f"median of the ratios {ratio:.2f}; written: {path.name}")
    if ratio < options.least:
        sys.exit(f"the ratio is under {options.least}")


if __name__ == "__main__":
    main()
