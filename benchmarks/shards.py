"""CPU of a message with 1, 2 and 4 shards: `python -m benchmarks.shards [--messages 6000] [--rounds 3]`.

Each count has as many Coreapps as shards, one network node, one Webapp and MariaDB, its log flushed at every commit. 64
clients for each shard send to 1,000 recipients whose sessions are there. Counts take turns, round by round, so that
what else the machine does meets all of them. Every message is reconciled. The last table says what more shards would
carry on enough cores: what one process can do in a second of CPU, by what a message costs it.
"""

from __future__ import annotations

import argparse
import asyncio
import dataclasses
import datetime
import statistics
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import uvloop

from benchmarks import system, workloads
from harness.cluster import Cluster, Shape
from harness.mariadb import MariaDB

COUNTS = (1, 2, 4)
PREDICTED = (1, 2, 4, 8, 16, 32)
ROLES = ("webapp", "coreapp", "network", "mariadbd", "robots", "sink", "load")
# Of those that carry a message for a business; the others play its recipients, its webhook and its clients.
CARRIERS = ("webapp", "coreapp", "network", "mariadbd")
# CPU that a process may use of its core before what waits for it grows long.
USABLE = 0.7
RESULTS = Path(__file__).parent / "results"


async def measure(count: int, messages: int) -> dict[str, Any]:
    """The figures of one run with so many shards. Raises as `system.measure_one`."""
    workload = workloads.find("warm64")
    workload = dataclasses.replace(workload, clients=count * workload.clients)
    environment = {**system.ENVIRONMENT, "TIDINGS_ROBOTS_PER_KIND": str(workload.robots)}
    mariadb = MariaDB(flush_log=1, buffer_pool_mb=256)
    with tempfile.TemporaryDirectory(prefix="tidings-shards-") as directory:
        try:
            await asyncio.to_thread(mariadb.start)
            shape = Shape(webapps=1, coreapps=count, networks=1, shards=count)
            async with Cluster(Path(directory), mariadb, None, environment, shape=shape) as cluster:
                await system.prepare(cluster, workload.robots)
                return await system.measure_one(cluster, workload, messages)
        finally:
            mariadb.remove()


def by_role(cpu: Mapping[str, float]) -> dict[str, float]:
    """Microseconds of a message, the processes of a role together."""
    return {role: sum(used for name, used in cpu.items() if name.rstrip("0123456789") == role) for role in ROLES}


def table(found: Mapping[int, Sequence[dict[str, Any]]]) -> list[str]:
    """A line for each count: medians of its rounds."""
    lines = ["| shards | messages/s here | " + " | ".join(ROLES) + " | all | to one shard |", "|--:" * 11 + "|"]
    base = 0.0
    for count, rounds in found.items():
        roles = [by_role(figures["cpu_us"]) for figures in rounds]
        medians = {role: statistics.median(one[role] for one in roles) for role in ROLES}
        whole = statistics.median(sum(one.values()) for one in roles)
        base = base or whole
        rate = statistics.median(figures["rate"] for figures in rounds)
        cells = " | ".join(f"{medians[role]:.0f}" for role in ROLES)
        lines.append(f"| {count} | {rate:.0f} | {cells} | {whole:.0f} | {whole / base:.2f} |")
    return lines


def prediction(found: Mapping[int, Sequence[dict[str, Any]]]) -> list[str]:
    """What so many shards would carry, each on a core of its own, and how many of the others that takes."""
    used = {
        role: max(statistics.median(by_role(f["cpu_us"])[role] for f in rounds) for rounds in found.values())
        for role in CARRIERS
    }
    lines = ["| shards | messages/s | Webapps | network nodes | cores of the database |", "|--:|--:|--:|--:|--:|"]
    for count in PREDICTED:
        rate = count * USABLE * 1e6 / used["coreapp"]
        needed = {role: rate * used[role] / 1e6 / USABLE for role in ("webapp", "network", "mariadbd")}
        lines.append(
            f"| {count} | {rate:,.0f} | {needed['webapp']:.1f} | {needed['network']:.1f} | {needed['mariadbd']:.1f} |"
        )
    return lines


def write(found: Mapping[int, Sequence[dict[str, Any]]], messages: int) -> Path:
    """The report of today."""
    date = datetime.date.today().isoformat()
    path = RESULTS / f"{date}-shards.md"
    rounds = len(next(iter(found.values())))
    text = [
        f"# CPU of a message by the number of shards, {date}",
        "",
        f"Microseconds of CPU, medians of {rounds} rounds of {messages:,} messages, 64 clients for each shard, taken "
        "by `python -m benchmarks.shards` on two cores that everything shares: so the rate here does not grow with the "
        "shards, and what a message costs is what counts.",
        "",
        *table(found),
        "",
        "## What more shards would carry",
        "",
        f"Where each Coreapp has a core of its own, of which {USABLE:.0%} can be used before what waits for it grows "
        "long. The dearest count measured above is taken for all. Shards share no row and no connection, so that "
        "nothing but the database, which all of them write to, is in the way of more.",
        "",
        *prediction(found),
        "",
    ]
    path.write_text("\n".join(text))
    return path


async def run(messages: int, rounds: int) -> None:
    found: dict[int, list[dict[str, Any]]] = {count: [] for count in COUNTS}
    for number in range(rounds):
        for count in COUNTS:
            figures = await measure(count, messages)
            found[count].append(figures)
            whole = sum(by_role(figures["cpu_us"]).values())
            print(f"round {number + 1}, {count} shards: {figures['rate']:.0f}/s, {whole:.0f} µs a message", flush=True)
    print("\n".join(table(found)))
    print(f"written: {write(found, messages).name}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--messages", type=int, default=6_000, help="a run (default 6,000)")
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(run(options.messages, options.rounds))
    except system.Failed as failed:
        sys.exit(f"FAILED: {failed}")


if __name__ == "__main__":
    main()
