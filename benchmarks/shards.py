"""CPU of a message with 1, 2 and 4 shards: `python -m benchmarks.shards [--quick] [--rounds 3]`.

Each count has as many Coreapps as shards, one network node, one Webapp and MariaDB, its log flushed at every commit. 64
clients for each shard send to 1,000 recipients whose sessions are there. Counts take turns, round by round, so that
what else the machine does meets all of them. Every message is reconciled. The last table says what more shards would
carry on enough cores: what one process can do in a second of CPU, by what a message costs it.
"""

from __future__ import annotations

import argparse
import dataclasses
import functools
import statistics
from collections.abc import Mapping, Sequence

from benchmarks import calibrations, system
from benchmarks.rig import report, session, stage
from benchmarks.rig.run import PRODUCT, Run
from benchmarks.rig.sampler import role
from benchmarks.rig.session import Benchmark, Session, Variant
from benchmarks.workloads import WARM
from harness.cluster import Shape

COUNTS = (1, 2, 4)
PREDICTED = (1, 2, 4, 8, 16, 32)
ROLES = (*PRODUCT, "mariadbd", "robots", "sink", "load")
# Of those that carry a message for a business; the others play its recipients, its webhook and its clients.
CARRIERS = (*PRODUCT, "mariadbd")
# CPU that a process may use of its core before what waits for it grows long.
USABLE = 0.7
MESSAGES, QUICK = 6_000, 600
HOW = """\
Taken by `make bench-shards` (`python -m benchmarks.shards`): as many Coreapps as shards, one network node, one Webapp,
64 clients for each shard, 1,000 recipients whose sessions are settled. Counts take turns, round by round. The cores are
shared, so the rate here does not grow with the shards: what a message costs is what counts."""


def by_role(cpu: Mapping[str, float]) -> dict[str, float]:
    """Microseconds of a message, the processes of a role together."""
    return {wanted: sum(used for name, used in cpu.items() if role(name) == wanted) for wanted in ROLES}


def costs(found: Mapping[int, Sequence[Run]]) -> list[str]:
    """A line for each count: medians of its rounds."""
    rows, base = [], 0.0
    for count, runs in found.items():
        roles = [by_role(one.cpu_us()) for one in runs]
        medians = {name: statistics.median(one[name] for one in roles) for name in ROLES}
        whole = statistics.median(sum(one.values()) for one in roles)
        base = base or whole
        rows.append([count, *(f"{medians[name]:.0f}" for name in ROLES), f"{whole:.0f}", f"{whole / base:.2f}"])
    return report.table(["shards: CPU of a message, µs", *ROLES, "all", "to one shard"], rows)


def prediction(found: Mapping[int, Sequence[Run]]) -> list[str]:
    """What so many shards would carry, each on a core of its own, and how many of the others that takes."""
    used = {
        name: max(statistics.median(by_role(one.cpu_us())[name] for one in runs) for runs in found.values())
        for name in CARRIERS
    }
    rows = []
    for count in PREDICTED:
        rate = count * USABLE * 1e6 / used["coreapp"]
        needed = [rate * used[name] / 1e6 / USABLE for name in ("webapp", "network", "mariadbd")]
        rows.append([count, f"{rate:,.0f}", *(f"{cores:.1f}" for cores in needed)])
    return report.table(["shards", "messages/s", "Webapps", "network nodes", "cores of the database"], rows)


async def measure_one(current: Session, count: int, messages: int) -> Run:
    """The figures of one run with so many shards. Raises as `system.measure_one`."""
    workload = dataclasses.replace(
        WARM,
        name=f"shards{count}",
        title=f"{count} shards, {count * WARM.clients} clients",
        clients=count * WARM.clients,
    )
    shape = Shape(webapps=1, coreapps=count, networks=1, shards=count)
    async with stage.prepared(current, robots=workload.robots, shape=shape) as prepared:
        return await system.measure_one(prepared, workload, messages)


async def measure(current: Session) -> None:
    """Every count in every round."""
    options = current.options
    messages = QUICK if options.quick else options.messages
    variants = [
        Variant(f"shards{count}", f"{count} shards", functools.partial(measure_one, current, count, messages))
        for count in COUNTS
    ]
    await current.alternate(*variants, rounds=1 if options.quick else options.rounds)
    runs = current.report.runs
    found = {count: [one for one in runs if one.name == f"shards{count}"] for count in COUNTS}
    found = {count: ones for count, ones in found.items() if ones}
    if found:
        current.report.notes += [
            "\n".join(costs(found)),
            "## What more shards would carry",
            f"Where each Coreapp has a core of its own, of which {USABLE:.0%} can be used before what waits "
            "for it grows long. The dearest count measured above is taken for all. Shards share no row and no "
            "connection, so that nothing but the database, which all of them write to, is in the way of more.",
            "\n".join(prediction(found)),
        ]


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--messages", type=int, default=MESSAGES, help="a run (default %(default)s)")
    parser.add_argument("--rounds", type=int, default=3)


BENCHMARK = Benchmark(
    name="shards",
    title="CPU of a message by the number of shards",
    how=HOW,
    measure=measure,
    calibrations=calibrations.COMMON,
    add_options=add_options,
)

if __name__ == "__main__":
    session.main(BENCHMARK, __doc__)
