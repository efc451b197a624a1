"""CPU per message with 1, 2 and 4 shards: `python -m benchmarks.shards [--quick] [--rounds 3]`.

Each count has as many Coreapps as shards, one network node, one Webapp and MariaDB, which flushes its log at every
commit, and 1,000 recipients with existing sessions. First each shard gets the same rate, low enough for the machine to
carry all: the CPU per message then shows the cost of sharding. Then one shard gets 64 clients that send as fast as they
get responses while the others are idle, as if each had its own cores. Last, all get 64 clients, which saturates the
cores. Counts alternate, round by round, so that other load on the machine affects all of them. Every message is
reconciled. The last table predicts the throughput of more shards on enough cores, from the CPU that one message costs a
process.
"""

from __future__ import annotations

import argparse
import dataclasses
import functools
import statistics
from collections.abc import Mapping, Sequence

from benchmarks import calibrations, system
from benchmarks.rig import contents, messages, report, session, stage
from benchmarks.rig.run import PRODUCT, Run
from benchmarks.rig.sampler import role
from benchmarks.rig.session import Benchmark, Session, Variant
from benchmarks.workloads import WARM
from harness import client
from harness.cluster import ProcessCounts
from tidings.wire.addresses import shard_of

COUNTS = (1, 2, 4)
KINDS = ("steady", "alone", "full")
PREDICTED = (1, 2, 4, 8, 16, 32)
ROLES = (*PRODUCT, "mariadbd", "robots", "sink", "load")
# Processes that carry a message for a business; the others simulate its recipients, its webhook and its clients.
CARRIERS = (*PRODUCT, "mariadbd")
# CPU fraction of its core that a process may use before its backlog grows.
USABLE = 0.7
MESSAGES, QUICK = 6_000, 600
# Messages per second and shard, and duration.
RATE, SECONDS, QUICK_SECONDS = 150.0, 15.0, 3.0
HOW = """\
Taken by `make bench-shards` (`python -m benchmarks.shards`): as many Coreapps as shards, one network node, one Webapp,
1,000 recipients whose sessions are settled. *Steady* runs send each shard the same rate, so that each Coreapp has the
same work in all of them. In *alone* runs 64 clients send to the same 250 recipients, all of one shard, as fast as they
get answers, while the other shards rest: that one has the cores that each would have of its own. In *full* runs there
are 64 clients for each shard. Counts take turns, round by round. The cores are shared, so the rate of the full runs
does not grow with the shards, and the more processes take turns on a core, the more a message costs: what sharding
itself costs is in the others."""


def by_role(cpu: Mapping[str, float]) -> dict[str, float]:
    """Sum the microseconds per message by role."""
    return {wanted: sum(used for name, used in cpu.items() if role(name) == wanted) for wanted in ROLES}


def costs(title: str, found: Mapping[int, Sequence[Run]]) -> list[str]:
    """Return a table with a line per count: medians of its rounds."""
    rows, base = [], 0.0
    for count, runs in found.items():
        roles = [by_role(one.cpu_us()) for one in runs]
        medians = {name: statistics.median(one[name] for one in roles) for name in ROLES}
        product = statistics.median(sum(one[name] for name in PRODUCT) for one in roles)
        whole = statistics.median(sum(one.values()) for one in roles)
        base = base or product
        used = [*(f"{medians[name]:.0f}" for name in ROLES), f"{whole:.0f}", f"{product:.0f}"]
        rows.append([count, *used, f"{product / base:.2f}"])
    return report.table([f"{title}: CPU of a message, µs", *ROLES, "all", "ours", "to one shard"], rows)


def prediction(found: Mapping[int, Sequence[Run]]) -> list[str]:
    """Return a table of the throughput by number of shards, each on its own core, and of the other processes needed."""
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


def shape_of(count: int) -> ProcessCounts:
    return ProcessCounts(webapps=1, coreapps=count, networks=1, shards=count)


async def measure_full(current: Session, count: int, amount: int) -> Run:
    """Measure one run with `count` shards, all under full load. Raises as `system.measure_one`."""
    workload = dataclasses.replace(
        WARM,
        name=f"full{count}",
        title=f"{count} shards, {count * WARM.clients} clients",
        clients=count * WARM.clients,
    )
    async with stage.prepared(current, robots=workload.robots, shape=shape_of(count)) as prepared:
        return await system.measure_one(prepared, workload, amount)


async def measure_alone(current: Session, count: int, amount: int) -> Run:
    """Measure one run with load for one shard: for those recipients that it has with the highest count, too."""
    numbers = [n for n in stage.recipients(WARM.robots, WARM.robots) if shard_of(n, COUNTS[-1]) == 0]
    async with (
        stage.prepared(current, robots=WARM.robots, shape=shape_of(count)) as prepared,
        prepared.performance(f"alone{count}") as scene,
    ):
        await messages.warm_up(scene, numbers, WARM.clients)
        work = [contents.text(numbers[i % len(numbers)], f"alone {i}: ") for i in range(amount)]
        title = f"one of {count} shards, {WARM.clients} clients"
        return await messages.closed(scene, f"alone{count}", title, work, WARM.clients, planned=amount)


async def measure_steady(current: Session, count: int, rate: float, seconds: float) -> Run:
    """Measure one run at a rate per shard. Raises `RunFailed` and others."""
    numbers = stage.recipients(WARM.robots, WARM.robots)
    whole = round(rate * count * seconds)
    work = [(numbers[i % WARM.robots], f"steady {i}: ".ljust(contents.TEXT, ".")) for i in range(whole)]
    async with (
        stage.prepared(current, robots=WARM.robots, shape=shape_of(count)) as prepared,
        prepared.performance(f"steady{count}") as scene,
    ):
        await messages.warm_up(scene, numbers)
        async with messages.measured(scene, whole) as found:
            await client.open_loop(scene.business, work, rate * count, load=found.load)
    return found.run(f"steady{count}", f"{count} shards, {rate:.0f}/s for each", parameters={"rate": rate * count})


async def measure(current: Session) -> None:
    """Measure every count in every round, first at the steady rate."""
    options = current.options
    amount = QUICK if options.quick else options.messages
    seconds = QUICK_SECONDS if options.quick else SECONDS
    rounds = 1 if options.quick else options.rounds
    steady = [
        Variant(
            f"steady{count}",
            f"{count} shards, steady",
            functools.partial(measure_steady, current, count, options.rate, seconds),
        )
        for count in COUNTS
    ]
    full = [
        Variant(f"full{count}", f"{count} shards, full", functools.partial(measure_full, current, count, amount))
        for count in COUNTS
    ]
    alone = [
        Variant(f"alone{count}", f"one of {count} shards", functools.partial(measure_alone, current, count, amount))
        for count in COUNTS
    ]
    for variants in (steady, alone, full):
        wanted = [variant for variant in variants if current.is_wanted(variant.name)]
        if wanted:
            await current.alternate(*wanted, rounds=rounds)
    current.report.notes += ["\n".join(costs(title, found)) for title in KINDS if (found := runs_of(current, title))]
    if found := runs_of(current, "full"):
        current.report.notes += [
            "## What more shards would carry",
            f"Where each Coreapp has a core of its own, of which {USABLE:.0%} can be used before what waits "
            "for it grows long. The dearest count of the full runs is taken for all. Shards share no row and no "
            "connection, so that nothing but the database, which all of them write to, is in the way of more.",
            "\n".join(prediction(found)),
        ]


def runs_of(current: Session, name: str) -> dict[int, list[Run]]:
    """Return the finished runs of a kind, by the number of shards."""
    found = {count: [one for one in current.report.runs if one.name == f"{name}{count}"] for count in COUNTS}
    return {count: ones for count, ones in found.items() if ones}


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--messages", type=int, default=MESSAGES, help="a run (default %(default)s)")
    parser.add_argument("--rate", type=float, default=RATE, help="a second, for each shard, steady (%(default)s)")
    parser.add_argument("--rounds", type=int, default=3)


BENCHMARK = Benchmark(
    name="shards",
    title="CPU of a message by the number of shards",
    how=HOW,
    measure=measure,
    names=[f"{name}{count}" for name in KINDS for count in COUNTS],
    calibrations=calibrations.COMMON,
    add_options=add_options,
)

if __name__ == "__main__":
    session.main(BENCHMARK, __doc__)
