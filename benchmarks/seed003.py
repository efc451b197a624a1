"""Messages to groups, to one user and to all, at the highest rate at which 99 % of them take under a second.

    python -m benchmarks.seed003 [--quick] [--only NAME ...]

Messages have 2,048 bytes, as in the published tables. A group has at most 256 participants here, so that `big-groups`
has as many groups of 250 as the connections allow. `ten-groups` has the published 10 groups of 1,000, which it writes
into the database: the limit of 256 applies to joining. `user` and `broadcast` use the network's own REST API
(`/v1/announcements`). Latency is measured from before the message is sent until its delivery. Each rate is tried for
some seconds, and counts only when everything arrived, once.
"""

from __future__ import annotations

import asyncio
import dataclasses
import functools
import itertools
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import aiohttp

from benchmarks import calibrations
from benchmarks.devices.echo import CONVERSATIONS, echoes
from benchmarks.devices.network import API_KEY, DeviceNetwork, network_of, numbers
from benchmarks.rig import report, session, summary
from benchmarks.rig.run import Run, RunFailed
from benchmarks.rig.sampler import Samples
from benchmarks.rig.session import Benchmark, Session, Variant
from benchmarks.rig.summary import Summary
from harness.control import ChildFailed
from harness.fleet_process import FleetProcess
from tidings.wire import device

SIZE = 2048
# Published messages per second, in and out, for 1,000 and 10,000 connections (Unit 1 and Unit 10).
PUBLISHED = {
    "big-groups": {1000: (30, 3000), 10_000: (30, 30_000)},
    "ten-groups": {10_000: (30, 30_000)},
    "small-groups": {1000: (200, 2000), 10_000: (2000, 20_000)},
    "user": {1000: (180, 180), 10_000: (1800, 1800)},
    "broadcast": {1000: (3, 3000), 10_000: (3, 30_000)},
}
# Published echoes per second for the same connections.
PUBLISHED_ECHOES = (500, 5000)
MEMBERS = {"big-groups": 250, "ten-groups": 1000, "small-groups": 10}
SCENARIOS = [(name, count) for name, counts in PUBLISHED.items() for count in counts]
SECONDS, QUICK_SECONDS = 5.0, 2.0
# Milliseconds that 99 % of the messages must stay below.
LIMIT = 1000.0
# Factor between increasing rates; then number of halvings between the highest good and the lowest bad rate.
FACTOR, HALVINGS = 1.6, 2
# HTTP requests in flight.
REQUESTS = 64
# Seconds until all deliveries of a trial must have arrived.
TIMEOUT = 60.0
# Seconds without a delivery after which none is in flight.
QUIET = 0.5


@dataclasses.dataclass(slots=True)
class Trial:
    """Trial of one rate."""

    rate: float  # messages per second
    deliveries: int
    seconds: float  # until the last delivery
    times: Summary
    lag: float  # longest delay of a send after its due time, seconds
    samples: Samples

    @property
    def is_good(self) -> bool:
        """Return whether messages and sends were within the limit."""
        return self.times.p99 < LIMIT and self.lag < LIMIT / 1000


class FleetTrials:
    """Connected devices of one fleet, with or without groups."""

    def __init__(self, network: DeviceNetwork, fleet: FleetProcess, some: Sequence[str], seconds: float) -> None:
        self._network = network
        self._fleet = fleet
        self._numbers = some
        self._seconds = seconds
        # Index of the sending member in its group.
        self._speaker = 0
        self._http = aiohttp.ClientSession(
            network.nodes[0].http,
            headers={"Authorization": f"Apikey {API_KEY}"},
            connector=aiohttp.TCPConnector(limit=REQUESTS),
        )

    async def close(self) -> None:
        await self._http.close()

    def group(self, members: int) -> list[tuple[Sequence[str], str]]:
        """Insert groups of `members` participants directly into the database; return their members and ids."""
        groups, chats, rows = [], [], []
        for index, start in enumerate(range(0, len(self._numbers) - members + 1, members)):
            some = self._numbers[start : start + members]
            name = f"{some[0]}-{1_700_000_000 + index}"
            groups.append((some, name))
            chats.append((name, some[0], "a group", 1_700_000_000_000, 1, f"code{index}", ""))
            rows += [(name, number, position == 0, position) for position, number in enumerate(some)]
        columns = "id, creator, subject, created_at, epoch, code, icon_type"
        self._network.execute("DELETE FROM group_chat_members WHERE position >= %s", [(0,)])
        self._network.execute("DELETE FROM group_chats WHERE epoch >= %s", [(0,)])
        self._network.execute(f"INSERT INTO group_chats ({columns}) VALUES (%s, %s, %s, %s, %s, %s, %s)", chats)
        self._network.execute(
            "INSERT INTO group_chat_members (group_id, number, admin, position) VALUES (%s, %s, %s, %s)", rows
        )
        return groups

    async def to_groups(self, groups: Sequence[tuple[Sequence[str], str]], members: int, rate: float) -> Trial:
        """Run one trial in which one member of each group sends."""
        routes = [(some[self._speaker % members], name) for some, name in groups]
        count = max(len(routes) if rate > len(routes) else 1, round(rate * self._seconds))

        async def send() -> float:
            said = await self._fleet.send(routes, rate=rate, count=count, size=SIZE, kind=device.GROUP, epoch=1)
            if said["refused"]:
                # Everything of this sender is refused for a while, until the refused message is sent again.
                self._speaker += 1
                raise RunFailed(f"refused: {said['refused']}")
            return float(said["lag"])

        return await self._try(send, rate, count, count * (members - 1))

    async def to_users(self, rate: float) -> Trial:
        """Run one trial with a request per device, in round robin."""
        some = itertools.cycle(self._numbers)
        count = round(rate * self._seconds)
        return await self._try(
            lambda: self._post(rate, count, lambda: f"/v1/announcements/{next(some)}"), rate, count, count
        )

    async def to_all(self, rate: float) -> Trial:
        """Run one trial of broadcasts."""
        count = max(3, round(rate * self._seconds))
        everywhere = count * len(self._numbers)
        return await self._try(lambda: self._post(rate, count, lambda: "/v1/announcements"), rate, count, everywhere)

    async def _post(self, rate: float, count: int, url: Callable[[], str]) -> float:
        """Send requests at the rate regardless of earlier responses; return the longest delay in seconds."""
        loop = asyncio.get_running_loop()
        began, latest = loop.time(), 0.0

        async def post(path: str, due: float) -> None:
            late = max(0.0, loop.time() - due)
            stamp = time.monotonic_ns() - int(late * 1e9)
            async with self._http.post(path, json={"text": f"@{stamp:020}".ljust(SIZE, "x")}) as response:
                if response.status != 202:
                    raise RunFailed(f"{response.status}: {await response.text()}")

        async with asyncio.TaskGroup() as group:
            for index in range(count):
                due = began + index / rate
                if (wait := due - loop.time()) > 0:
                    await asyncio.sleep(wait)
                latest = max(latest, loop.time() - due)
                group.create_task(post(url(), due))
        return latest

    async def _settle(self) -> None:
        """Wait until no more deliveries of a failed trial arrive."""
        before = -1
        async with asyncio.timeout(TIMEOUT):
            while (now := (await self._fleet.counts())["delivered"]) != before:
                before = now
                await asyncio.sleep(QUIET)

    async def _try(self, send: Callable[[], Awaitable[float]], rate: float, count: int, due: int) -> Trial:
        await self._settle()
        await self._fleet.request("reset")
        async with self._network.sampler() as sampler:
            began = time.monotonic()
            lag = await send()
            counts = await self._fleet.request("until_delivered", count=due, seconds=TIMEOUT)
            seconds = time.monotonic() - began
        if counts["delivered"] != due or counts["repeats"] or counts["wrong"] or counts["failures"]:
            raise RunFailed(f"{due} were due: {counts}")
        times = summary.summarise([each / 1000 for each in await self._fleet.take_latencies()])
        return Trial(rate, due, seconds, times, lag, sampler.samples)


async def climb(start: float, attempt: Callable[[float], Awaitable[Trial]]) -> tuple[list[Trial], str]:
    """Search the highest good rate, from `start` upwards, or downwards if that is too much, then by halving.

    Returns the good trials, and the result of the lowest bad rate.
    """
    good: list[Trial] = []
    rate, bad, why, halvings = start, 0.0, "", 0
    while halvings <= HALVINGS and rate > start / 50:
        trial: Trial | None = None
        try:
            trial = await attempt(rate)
            note = f"{rate:,.1f}/s: p99 {trial.times.p99} ms"
        except (RunFailed, ChildFailed, ExceptionGroup, TimeoutError) as error:
            note = f"{rate:,.1f}/s: {session.reason(error)}"[-200:]
        print(f"    {note}", flush=True)
        if trial is not None and trial.is_good:
            good.append(trial)
        else:
            bad, why = rate, note
        best = max((each.rate for each in good), default=0.0)
        halvings += bool(bad and best)
        rate = rate * FACTOR if not bad else (best + bad) / 2 if best else rate / FACTOR
    return good, why


async def scenario(current: Session, name: str, count: int) -> Run:
    """Find the highest rate of one scenario."""
    inbound, outbound = PUBLISHED[name][count]
    seconds = QUICK_SECONDS if current.options.quick else SECONDS
    async with network_of(current) as network:
        some = numbers(count)
        tokens = await network.register(some)
        fleet = await network.fleet()
        await network.attach(fleet, tokens)
        crowd = FleetTrials(network, fleet, some, seconds)
        try:
            attempt, start = crowd.to_users, inbound / 2
            if name in MEMBERS:
                members = MEMBERS[name]
                attempt = functools.partial(crowd.to_groups, crowd.group(members), members)
                start = outbound / (members - 1) / 2
            elif name == "broadcast":
                attempt = crowd.to_all
            # No sender and recipient are new to each other during the measurement.
            await attempt(max(1.0, start / 4))
            good, why = await climb(start, attempt)
        finally:
            await crowd.close()
    if not good:
        raise RunFailed(f"at no rate: {why}")
    best = max(good, key=lambda trial: trial.rate)
    return Run(
        name=f"{name}-{count}",
        title=f"{name}, {count:,} connections",
        count=best.deliveries,
        unit="deliveries",
        seconds=best.seconds,
        rate=best.deliveries / best.seconds,
        latencies={"to a device": best.times},
        throughput=[best.deliveries / best.seconds] * int(best.seconds),
        samples=best.samples,
        parameters={"scenario": name, "connections": count, "bytes": SIZE, "members": MEMBERS.get(name)},
        details={"in": round(best.rate, 1), "published": {"in": inbound, "out": outbound}, "above": why},
    )


async def measure(current: Session) -> None:
    """Carry out the wanted runs."""
    found = []
    for name, count in SCENARIOS:
        title = f"{name}-{count}"
        if current.is_wanted(title):
            found.append(await current.once(Variant(title, title, functools.partial(scenario, current, name, count))))
    heard = []
    for conversations in CONVERSATIONS:
        title = f"echo-{conversations}"
        if current.is_wanted(title):
            seconds = QUICK_SECONDS if current.options.quick else 2 * SECONDS
            measured = functools.partial(echoes, current, conversations, seconds)
            heard.append(await current.once(Variant(title, title, measured)))
    if whole := [run for run in heard if run is not None]:
        current.report.notes.append("\n".join(echo_table(whole)))
    rows: list[list[Any]] = [
        [
            run.title,
            f"{run.details['in']:,}",
            f"{run.rate:,.0f}",
            f"{run.details['published']['in']:,}",
            f"{run.details['published']['out']:,}",
            f"{run.latencies['to a device'].p99:,.0f}",
            run.details["above"],
        ]
        for run in found
        if run is not None
    ]
    if not rows:
        return
    header = ["", "in, /s", "out, /s", "published in", "published out", "p99, ms", "the next rate"]
    current.report.notes.append("\n".join(report.table(header, rows)))


def echo_table(runs: Sequence[Run]) -> list[str]:
    """Return a table of echoes: the rate, its fractions of the published ones, and whether it is within the limit."""
    header = ["conversations", "echoes/s", *(f"× published {rate:,}/s" for rate in PUBLISHED_ECHOES), "p99, ms"]
    rows = []
    for run in runs:
        p99 = run.latencies["a round"].p99
        fractions = [f"{run.rate / rate:.2f}" for rate in PUBLISHED_ECHOES]
        late = "" if p99 < LIMIT else " (over the limit)"
        rows.append([run.parameters["conversations"], f"{run.rate:,.0f}", *fractions, f"{p99:,.0f}{late}"])
    return report.table(header, rows)


BENCHMARK = Benchmark(
    name="seed003",
    title="Groups, users, broadcast",
    how="""Each run is the greatest rate at which 99 % of the messages of 2,048 bytes take under a second, each device
on a connection of its own over TCP. What is published was measured on a service of its own machines (Unit 1 for 1,000
connections, Unit 10 for 10,000), with 10 big groups of a tenth of all connections; a group has at most 256 participants
here, so there are groups of 250 (`big-groups`). `ten-groups` has the published 10 groups of 1,000, written into the
database, because nobody could join them. Messages to groups are stored before they are accepted. An echo is a message
of a recipient, encrypted, that comes to the webhook, and the reply to it over the API (published: 500 and 5,000 a
second for 1,000 and 10,000 connections, without encryption, by the webhook's own answer).""",
    measure=measure,
    calibrations=calibrations.COMMON,
    names=[
        *(f"{name}-{count}" for name, count in SCENARIOS),
        *(f"echo-{conversations}" for conversations in CONVERSATIONS),
    ],
)

if __name__ == "__main__":
    session.main(BENCHMARK, __doc__)
