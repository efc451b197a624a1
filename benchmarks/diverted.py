"""Live requests of some recipients, diverted to a second installation: `python -m benchmarks.diverted [--quick]`.

Requests are offered at a constant rate. For the first third of the time all go to the first installation, for the
second third those of `--share` of the recipients go to the second one, and then all go to the first one again. Each
installation has its own network, database and recipients; the same numbers are registered in both.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import dataclasses
import functools
import zlib
from collections.abc import Iterable, Mapping, Sequence

from benchmarks import calibrations
from benchmarks.rig import contents, messages, report, session, stage, summary
from benchmarks.rig.messages import Measured
from benchmarks.rig.run import Run, RunFailed
from benchmarks.rig.session import Benchmark, Session, Variant
from benchmarks.rig.stage import Stage
from benchmarks.rig.summary import Summary
from harness import measure as rates
from harness.client import Business, Sent
from harness.http_connection import Connection

ROBOTS = 1000
RATE, SHARE = 300.0, 0.25  # requests per second; fraction of the recipients that are diverted
SECONDS, QUICK_SECONDS = 15.0, 3.0  # of each third
IN_FLIGHT = 1000  # requests; at the limit the sender falls behind
THIRDS = ("before", "diverted", "after")
FIRST, SECOND = 0, 1
HOW = """\
Taken by `make bench-diverted` (`python -m benchmarks.diverted`): two installations on this machine, each with one
network node, Coreapp, Webapp, MariaDB and 1,000 recipients whose sessions are settled. Texts of 100 bytes are offered
at a constant rate to all recipients in turn. *Before* and *after*, all requests go to the first installation; between,
the requests of some recipients, chosen by a checksum of their number, go to the second, while it takes no other load.
Both are reconciled: each message was shown once, by a recipient of the installation that it was sent to, and its three
callbacks were answered."""


@dataclasses.dataclass(frozen=True, slots=True)
class Diversion:
    """Route of each request."""

    requests: int  # of the run
    share: float  # fraction of the recipients that are diverted in the second third

    def third(self, position: int) -> str:
        """Return the name of the third that the request at this position belongs to."""
        return THIRDS[min(2, position * 3 // self.requests)]

    def route(self, position: int, number: str) -> int:
        """Return the installation for the request at this position: `FIRST` or `SECOND`."""
        is_chosen = zlib.crc32(number.encode()) % 1000 < self.share * 1000
        return SECOND if is_chosen and self.third(position) == "diverted" else FIRST


@dataclasses.dataclass(frozen=True, slots=True)
class Routed:
    """A request that was sent, and its route."""

    third: str
    route: int
    sent: Sent


async def offer(
    businesses: Sequence[Business], work: Iterable[tuple[str, str]], rate: float, diversion: Diversion
) -> list[Routed]:
    """Send `work`, pairs of number and text, at `rate` requests per second; return all requests."""
    idle: list[list[Connection]] = [[] for _ in businesses]
    slots = asyncio.Semaphore(IN_FLIGHT)
    found: list[Routed] = []

    async def send(position: int, number: str, text: str) -> None:
        route = diversion.route(position, number)
        try:
            connection = idle[route].pop() if idle[route] else await businesses[route].connect()
            found.append(
                Routed(diversion.third(position), route, await businesses[route].send(connection, number, text))
            )
            if connection.usable:
                idle[route].append(connection)
        finally:
            slots.release()

    loop = asyncio.get_running_loop()
    began = loop.time()
    async with asyncio.TaskGroup() as group:
        for position, (number, text) in enumerate(work):
            if (wait := began + position / rate - loop.time()) > 0:
                await asyncio.sleep(wait)
            await slots.acquire()
            group.create_task(send(position, number, text))
    for connection in (connection for some in idle for connection in some):
        connection.close()
    return found


def summaries(found: Sequence[Routed], done: Mapping[str, float]) -> dict[str, dict[str, Summary]]:
    """Return latencies of the response and to the last callback, by third and installation, such as `diverted, second`.

    done: Unix seconds of the last callback, by message id
    """
    results: dict[str, dict[str, Summary]] = {}
    for third in THIRDS:
        for route, name in ((FIRST, "first"), (SECOND, "second")):
            some = [one.sent for one in found if (one.third, one.route) == (third, route)]
            if some:
                results[f"{third}, {name}"] = {
                    "response": summary.summarise([sent.took for sent in some]),
                    "last callback": summary.summarise([done[s.request.message_id] - s.started for s in some]),
                }
    return results


async def measure_one(stages: Sequence[Stage], rate: float, seconds: float, share: float) -> Run:
    """Measure one run; return the figures of the first installation, with those of the second in `details`.

    Raises `RunFailed` and others.
    """
    numbers = stage.recipients(ROBOTS, round(3 * seconds * rate))
    work = [(number, f"diverted {i}: ".ljust(contents.TEXT, ".")) for i, number in enumerate(numbers)]
    diversion = Diversion(len(work), share)
    async with contextlib.AsyncExitStack() as stack:
        scenes = [await stack.enter_async_context(one.performance("diverted")) for one in stages]
        for scene in scenes:
            await messages.warm_up(scene, stage.recipients(ROBOTS, ROBOTS))
        taken: list[Measured] = []
        async with contextlib.AsyncExitStack() as measuring:
            for scene in scenes:
                taken.append(await measuring.enter_async_context(messages.measured(scene)))
            found = await offer([scene.business for scene in scenes], work, rate, diversion)
            for one in found:
                taken[one.route].load.sent.append(one.sent)
    refused = [one for one in found if not one.sent.request.accepted]
    if refused:
        raise RunFailed(f"{len(refused)} of {len(found)} requests were refused: {refused[0].sent.request}")
    title = f"{rate:,.0f} requests/s, {share:.0%} of the recipients diverted"
    first, second = (one.run("diverted", title) for one in taken)
    done = {**rates.completion_times(taken[FIRST].records), **rates.completion_times(taken[SECOND].records)}
    details = {
        "second": {"messages": second.count, "cpu_us": second.cpu_us()},
        "latencies_ms": {
            where: {name: dataclasses.asdict(one) for name, one in both.items()}
            for where, both in summaries(found, done).items()
        },
    }
    parameters = {"rate": rate, "share": share, "seconds": 3 * seconds}
    return dataclasses.replace(first, parameters=parameters, details={**first.details, **details})


def table(run: Run) -> list[str]:
    """Return the latencies by third and installation."""
    rows = []
    for where, both in run.details["latencies_ms"].items():
        response, last = both["response"], both["last callback"]
        latencies = [f"{one[name]:.1f}" for one in (response, last) for name in ("p50", "p99")]
        rows.append([where, f"{response['count']:,}", *latencies])
    header = ["third, installation", "requests", "response p50, ms", "p99", "to the last callback p50, ms", "p99"]
    return report.table(header, rows)


async def measure(current: Session) -> None:
    """Prepare both installations, then measure."""
    options = current.options
    seconds = QUICK_SECONDS if options.quick else options.seconds
    directory = current.directory / "second"
    directory.mkdir()
    # A separate session, because each has one database server.
    other = Session(current.report, options, directory)
    try:
        async with (
            stage.prepared(current, robots=ROBOTS) as first,
            stage.prepared(other, robots=ROBOTS) as second,
        ):
            measured = functools.partial(measure_one, (first, second), options.rate, seconds, options.share)
            run = await current.once(Variant("diverted", "diverted", measured))
    finally:
        other.close()
    if run is not None:
        current.report.notes.append("\n".join(table(run)))


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--rate", type=float, default=RATE, help="requests per second (%(default)s)")
    parser.add_argument("--share", type=float, default=SHARE, help="fraction of the recipients (%(default)s)")
    parser.add_argument("--seconds", type=float, default=SECONDS, help="of each third (%(default)s)")


BENCHMARK = Benchmark(
    name="diverted",
    title="Live requests diverted to a second installation",
    how=HOW,
    measure=measure,
    names=["diverted"],
    calibrations=calibrations.COMMON,
    add_options=add_options,
)

if __name__ == "__main__":
    session.main(BENCHMARK, __doc__)
