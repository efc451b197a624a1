"""CPU time of a run by sampled stacks of its processes, summarised by package and as flame graphs."""

from __future__ import annotations

import collections
from collections.abc import Mapping, Sequence
from typing import TypeAlias

from benchmarks.rig.run import Run

# Samples by stack, outermost function first, each with its module, without line numbers.
Stacks: TypeAlias = "collections.Counter[tuple[str, ...]]"

PACKAGES = ("webapp", "coreapp", "network", "handset", "tidings", "media", "cli")
# The event loop has no frame: callbacks of uvloop, waits, and its reads and writes.
LOOP = "cli.process"
LOOP_NAME = "event loop, its reads and writes"
ELSEWHERE = "elsewhere"
# SQLAlchemy runs queries in a greenlet with a separate stack, whose outermost function is SQLAlchemy's.
STORAGE = "tidings.storage"
# Fraction of a process's samples below which a package is summed up with the rest.
LEAST = 0.02


def parse(text: str) -> Stacks:
    """Parse lines of `outermost:line;…;innermost:line count`, as `cli.process` writes them."""
    stacks: Stacks = collections.Counter()
    for line in text.splitlines():
        frames, _, count = line.rpartition(" ")
        stacks[tuple(frame.rpartition(":")[0] for frame in frames.split(";"))] += int(count)
    return stacks


def module(frame: str) -> str:
    """Return the first two names of one of our functions, such as `coreapp.webhook`; empty for a library's."""
    package, *names = frame.split(".")
    return f"{package}.{names[0]}" if package in PACKAGES else ""


def package_of(stack: Sequence[str]) -> str:
    """Return the package of our innermost function, which includes the library functions that it calls."""
    for frame in reversed(stack):
        if found := module(frame):
            return LOOP_NAME if found == LOOP else found
    return STORAGE if stack[0].startswith("sqlalchemy.") else ELSEWHERE


def package_shares(stacks: Stacks) -> list[tuple[str, float]]:
    """Return the fraction of samples by package, largest first; the sum of small ones last."""
    found: collections.Counter[str] = collections.Counter()
    for stack, count in stacks.items():
        found[package_of(stack)] += count
    total = found.total()
    parts = [(name, count / total) for name, count in found.most_common()]
    large = [entry for entry in parts if entry[1] >= LEAST]
    rest = sum(part for name, part in parts if part < LEAST)
    return [*large, (f"{len(parts) - len(large)} more", rest)] if rest else large


def lines(run: Run, profile: Mapping[str, Stacks]) -> list[list[str]]:
    """Return the rows of a table: process, package, percentage of its samples, µs of CPU per unit of the run."""
    used = run.cpu_us()
    return [
        [process, name, f"{part:.1%}", f"{part * used[process]:.0f}"]
        for process, stacks in profile.items()
        if process in used and stacks
        for name, part in package_shares(stacks)
    ]
