"""Messages with a new `Idempotency-Key` each, and without: `python -m benchmarks.idempotency_keys [--quick]`.

Runs the same load with and without keys in alternating rounds: 64 clients that wait for each response, then 500 and 900
messages offered per second. Fails when a run with keys reaches less than 95 % of the rate without, unless --quick.
"""

from __future__ import annotations

import argparse
import collections
import functools
from collections.abc import Awaitable, Callable

from benchmarks import calibrations
from benchmarks.rig import contents, messages, session, stage
from benchmarks.rig.run import Run, RunFailed
from benchmarks.rig.session import Benchmark, Session, Variant
from benchmarks.rig.stage import Scene, Stage
from harness import client
from harness.client import Load

ROBOTS, CLIENTS = 1000, 64
MESSAGES, QUICK = 10_000, 1_500
OFFERED = (500, 900)  # messages per second
SECONDS, QUICK_SECONDS = 12, 3  # duration of offered load, seconds
LEAST = 0.95  # minimum fraction of the rate without keys
HOW = """\
Taken by `make bench-idempotency_keys` (`python -m benchmarks.idempotency_keys`), warm sessions, 1,000 recipients, texts
of 100 bytes, MariaDB. *keys*: each request has an `Idempotency-Key` that no other has. *closed*: 64 clients wait for
each response before they send the next message. *offered*: so many messages a second are sent, regardless of earlier
responses; the rate is that of 201 responses. Rounds with and without keys alternate."""

Drive = Callable[[Scene, Load], Awaitable[object]]


async def measure_one(prepared: Stage, name: str, title: str, drive: Drive, *, keys: bool) -> Run:
    """Start from the prepared state, warm up, apply one load, stop. Raises `RunFailed` and others."""
    async with prepared.performance(name) as scene:
        await messages.warm_up(scene, stage.recipients(ROBOTS, ROBOTS), CLIENTS)
        scene.business.fresh_keys = keys
        async with messages.measured(scene) as found:
            await drive(scene, found.load)
        statuses = collections.Counter(str(sent.request.status) for sent in found.load.sent)
        accepted = sum(sent.request.accepted for sent in found.load.sent)
        accepted_rate = round(accepted / found.sent_in, 1)
        print(f"{name}: {accepted_rate} accepted a second, statuses {dict(statuses)}", flush=True)
        return found.run(name, title, details={"accepted_rate": accepted_rate, "statuses": dict(statuses)})


def closed(count: int) -> Drive:
    """Return a load of `count` messages that the clients share."""

    def drive(scene: Scene, load: Load) -> Awaitable[object]:
        numbers = stage.recipients(ROBOTS, count)
        work = [contents.text(number, f"closed {i}: ") for i, number in enumerate(numbers)]
        return client.closed_loop(scene.business, work, CLIENTS, load=load)

    return drive


def offered(rate: float, seconds: int) -> Drive:
    """Return a load of `rate` messages per second for `seconds`."""

    def drive(scene: Scene, load: Load) -> Awaitable[object]:
        numbers = stage.recipients(ROBOTS, int(rate * seconds))
        work = [(number, f"offered {i}: ".ljust(contents.TEXT, ".")) for i, number in enumerate(numbers)]
        return client.open_loop(scene.business, work, rate, load=load)

    return drive


async def measure(current: Session) -> None:
    """Measure each load with and without keys, in alternating rounds. Raises `RunFailed`."""
    quick = current.options.quick
    seconds = QUICK_SECONDS if quick else SECONDS
    loads = {f"offered{rate}": (f"{rate} a second offered", offered(rate, seconds)) for rate in OFFERED}
    loads["closed"] = (f"{CLIENTS} clients, warm", closed(QUICK if quick else MESSAGES))
    async with stage.prepared(current, robots=ROBOTS) as prepared:
        for name, (title, drive) in loads.items():
            if not current.is_wanted(name):
                continue
            without, with_keys = (
                Variant(
                    f"{name}{'-keys' if keys else ''}",
                    f"{title}{', keys' if keys else ''}",
                    functools.partial(
                        measure_one, prepared, f"{name}{'-keys' if keys else ''}", title, drive, keys=keys
                    ),
                )
                for keys in (False, True)
            )
            await current.alternate(without, with_keys, rounds=current.options.rounds)
            ratio = current.report.ratios[-1]
            if not quick and ratio.value is not None and ratio.value < LEAST:
                raise RunFailed(f"{ratio}: with keys less than {LEAST:.0%} of the rate without")


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--rounds", type=int, default=5, help="of each load (default %(default)s)")


BENCHMARK = Benchmark(
    name="idempotency_keys",
    title="Idempotency keys",
    how=HOW,
    measure=measure,
    names=["closed", *(f"offered{rate}" for rate in OFFERED)],
    calibrations=calibrations.COMMON,
    add_options=add_options,
)

if __name__ == "__main__":
    session.main(BENCHMARK, __doc__)
