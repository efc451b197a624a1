"""Where the CPU time of a run went: the sampled stacks of its processes, by room of the house and as flames."""

from __future__ import annotations

import collections
from collections.abc import Mapping, Sequence
from typing import TypeAlias

from benchmarks.rig.run import Run

# Samples by stack, outermost function first, each with its module, without lines.
Stacks: TypeAlias = "collections.Counter[tuple[str, ...]]"

PACKAGES = ("webapp", "coreapp", "network", "handset", "tidings", "media", "cli")
# The loop itself, which has no frame: callbacks of uvloop, waits, and the reads and writes that it does.
LOOP = "cli.process"
LOOP_NAME = "event loop, its reads and writes"
ELSEWHERE = "elsewhere"
# Whatever SQLAlchemy does for a query has its own stack (a greenlet), whose outermost function is SQLAlchemy's.
STORAGE = "tidings.storage"
# A room with less than this part of its process goes to the rest.
LEAST = 0.02


def parse(text: str) -> Stacks:
    """Lines of `outermost:line;…;innermost:line count`, as `tidings.runtime.sampling` writes them."""
    stacks: Stacks = collections.Counter()
    for line in text.splitlines():
        frames, _, count = line.rpartition(" ")
        stacks[tuple(frame.rpartition(":")[0] for frame in frames.split(";"))] += int(count)
    return stacks


def module(frame: str) -> str:
    """The first two names of a function of ours, `coreapp.webhook`; empty for one of a library."""
    package, *names = frame.split(".")
    return f"{package}.{names[0]}" if package in PACKAGES else ""


def room(stack: Sequence[str]) -> str:
    """The module of the innermost function of ours, with what it calls in libraries."""
    for frame in reversed(stack):
        if found := module(frame):
            return LOOP_NAME if found == LOOP else found
    return STORAGE if stack[0].startswith("sqlalchemy.") else ELSEWHERE


def rooms(stacks: Stacks) -> list[tuple[str, float]]:
    """The part of the samples that each room has, greatest first; small ones together as the last."""
    found: collections.Counter[str] = collections.Counter()
    for stack, count in stacks.items():
        found[room(stack)] += count
    total = found.total()
    parts = [(name, count / total) for name, count in found.most_common()]
    large = [entry for entry in parts if entry[1] >= LEAST]
    rest = sum(part for name, part in parts if part < LEAST)
    return [*large, (f"{len(parts) - len(large)} more", rest)] if rest else large


def lines(run: Run, profile: Mapping[str, Stacks]) -> list[list[str]]:
    """Of the table: process, room, part of the process's samples, microseconds of CPU for one unit of the run."""
    used = run.cpu_us()
    return [
        [process, name, f"{part:.1%}", f"{part * used[process]:.0f}"]
        for process, stacks in profile.items()
        if process in used and stacks
        for name, part in rooms(stacks)
    ]
