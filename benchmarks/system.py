"""Measure the whole system on this machine: `python -m benchmarks.system [--quick] [--only RUN …] [--rounds 2]`.

Everything runs here: network, robots, Coreapp, Webapp, MariaDB, the clients and the webhook. Limits are off, MariaDB
flushes its log at every commit. Any error, and any message not accounted for, ends the benchmark with exit status 1.
"""

from __future__ import annotations

import argparse
import functools

from benchmarks import calibrations
from benchmarks.rig import messages, session, stage
from benchmarks.rig.run import Run
from benchmarks.rig.session import Benchmark, Session, Variant
from benchmarks.rig.stage import Stage
from benchmarks.workloads import GROUPS, WORKLOADS, Workload

MESSAGES, QUICK = 10_000, 1_000
ROUNDS = 2
HOW = """\
Taken by `make bench-system` (`python -m benchmarks.system`). Rate limits are off, `sent_status` is on,
`max_concurrent_requests` is 24, robots read at once, log level info, texts of 100 bytes. A message is done when its
sent, delivered and read callbacks have all been answered by the webhook; the rate is from the first request to the last
of those callbacks. *Cold*: nobody was checked or written to before, each message goes to another recipient, and a
contacts call precedes it. *Warm*: 1,000 recipients whose sessions are settled, no contacts calls. CPU is that of all
threads of a process; `load` and `sink` are the benchmark's own clients and webhook. Every run is reconciled: sender's
ledger, robots' log and webhook agree on every message and its text."""


async def measure_one(prepared: Stage, workload: Workload, count: int) -> Run:
    """Start from the prepared state, run one workload, stop. Raises `RunFailed` and others."""
    async with prepared.performance(workload.name, workload.environment()) as scene:
        if workload.warm:
            await messages.warm_up(scene, stage.recipients(workload.robots, workload.robots), workload.clients)
        return await messages.closed(
            scene,
            workload.name,
            workload.title,
            workload.work(count),
            workload.clients,
            planned=count,
            contacts_first=workload.contacts_first,
        )


def variant(prepared: Stage, workload: Workload, count: int) -> Variant:
    """Return one workload as a variant of a session."""
    return Variant(workload.name, workload.title, functools.partial(measure_one, prepared, workload, count))


async def measure(current: Session) -> None:
    """Carry out all wanted groups; the runs of a group alternate."""
    options = current.options
    count = min(options.messages or (QUICK if options.quick else MESSAGES), stage.MOST_ROBOTS)
    wanted = [[one for one in group if current.is_wanted(one.name)] for group in GROUPS]
    robots = max(one.robots or count for group in wanted for one in group)
    async with stage.prepared(current, robots=robots) as prepared:
        for group in filter(None, wanted):
            base, *others = (variant(prepared, one, count) for one in group)
            rounds = options.rounds or (1 if options.quick or options.only else ROUNDS)
            await current.alternate(base, *others, rounds=rounds)


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--messages", type=int, help=f"a run (default {MESSAGES:,}, at most as many as robots)")
    parser.add_argument("--rounds", type=int, help=f"of each run (default {ROUNDS}, 1 with --only)")
    # Name of `--only` in earlier revisions, so that `benchmarks.compare` can run them.
    parser.add_argument("--workload", action="append", dest="only", help=argparse.SUPPRESS)


BENCHMARK = Benchmark(
    name="system",
    title="The whole system",
    how=HOW,
    measure=measure,
    names=[workload.name for workload in WORKLOADS],
    calibrations=calibrations.COMMON,
    add_options=add_options,
)

if __name__ == "__main__":
    session.main(BENCHMARK, __doc__)
