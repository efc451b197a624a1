"""Several numbers in one installation: `python -m benchmarks.numbers [--quick] [--rounds 5]`.

Alternates 64 clients that send from one number with 64 clients that send from 20 numbers, and 10 numbers that send
alone with the same while another number is flooded with 10 times its limit. Fails when 20 numbers reach less than 90 %
of the rate of one, or when the flood moves the p99 of the others by more than 20 ms, unless --quick.
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import dataclasses
import functools
import os
import re
import statistics
import sys
import time
from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks import calibrations, overload
from benchmarks.flood import FloodParameters
from benchmarks.rig import contents, messages, session, stage, summary
from benchmarks.rig.run import Run, RunFailed
from benchmarks.rig.session import Benchmark, Session, Variant
from benchmarks.rig.stage import Scene, Stage
from harness import client, ledger, polling
from harness.client import Business, Message, Sent, UnexpectedResponse
from harness.http_connection import Connection
from harness.installation import Installation

NUMBERS, ROBOTS, CLIENTS = 20, 1000, 64
EACH = ROBOTS // NUMBERS  # recipients of one number
MESSAGES, QUICK = 10_000, 1_500
WARM_UP_RATE = 25.0  # messages per second of a number
LIMIT, FACTOR = 80, 10  # limit of a number in messages per second, and the multiple of it that is offered
QUIET, QUIET_RATE = 10, 4.0  # other numbers than the flooded one, and messages per second of each
SECONDS, QUICK_SECONDS = 20, 5  # duration of a flood
CONNECTING = 10.0  # seconds for the start of the flooding process
LEAST = 0.9  # minimum rate of all numbers, relative to one
MOST_MS = 20.0  # maximum change of the p99 of the others
PASSWORD = "Numbers-2026!"
HOW = """\
Taken by `make bench-numbers` (`python -m benchmarks.numbers`), 20 numbers with one shard each, 1,000 recipients, warm
sessions, texts of 100 bytes, MariaDB. *one*: 64 clients wait for each response and send from the first number.
*twenty*: the same clients send from all numbers in turn. *calm*: 10 numbers send 4 messages per second each, below
their limit of 80. *flooded*: the same, while another process offers 800 messages per second from the first number.
Rounds alternate."""


@dataclasses.dataclass(slots=True)
class Numbers:
    """Tokens of the prepared installation's numbers, and clients that use them."""

    tokens: list[str] = dataclasses.field(default_factory=list)

    def clients(self, scene: Scene) -> list[Business]:
        """Return a client of each number, the first number first."""
        found = [scene.business]
        for token in self.tokens:
            business = Business(scene.business.port)
            business.use(token)
            found.append(business)
        return found


class SharedClients(Business):
    """Clients that share numbers. Each message has the token of the number that writes to its recipient."""

    def __init__(self, businesses: Sequence[Business]) -> None:
        """businesses: one of each number, in the order of the recipients"""
        super().__init__(businesses[0].port)
        everyone = stage.recipients(ROBOTS, ROBOTS)
        self._of = {to: businesses[index % len(businesses)] for index, to in enumerate(everyone)}

    async def post(self, connection: Connection, message: Message) -> Sent:
        return await self._of[message.number].post(connection, message)


async def _log_in(business: Business, authorization: bytes) -> tuple[int, Any]:
    """Log in with a new password, as often as the limit of password checks permits it. Returns the last response."""
    while True:
        body = {"new_password": PASSWORD}
        status, response = await business.call("POST", "/v1/users/login", body, authorization=authorization)
        if status != 429:
            return status, response
        await asyncio.sleep(1.0)


def recipients_of(index: int) -> list[str]:
    """Return the recipients that only this number writes to."""
    return stage.recipients(ROBOTS, ROBOTS)[index::NUMBERS]


async def add_all(numbers: Numbers, installation: Installation) -> None:
    """Add the further numbers, and log in to each. Raises `UnexpectedResponse`."""
    for index in range(1, NUMBERS):
        number = str(15550000000 + index)
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "cli.main", "number", "add", number),
            env={**os.environ, **installation.common},
            stdout=asyncio.subprocess.PIPE,
        )
        output, _ = await process.communicate()
        password = re.search(rb"first password  (\S+)", output)
        if password is None:
            raise UnexpectedResponse(f"number add: {output!r}")
        login = b"Basic " + base64.b64encode(b"admin@%s:%s" % (number.encode(), password[1]))
        business = Business(installation.api_port)
        status, response = await _log_in(business, login)
        if status != 200:
            raise UnexpectedResponse(f"login of {number}: {status} {response}")
        numbers.tokens.append(response["users"][0]["token"])


async def connected(business: Business) -> None:
    """Wait until the number is logged in to the network."""

    async def is_connected() -> bool:
        health = (await business.check_call("GET", "/v1/health"))["health"]
        states = [health] if "gateway_status" in health else list(health.values())
        return all(state["gateway_status"] == "connected" for state in states)

    await polling.until(is_connected, seconds=60.0)


async def warm_up(scene: Scene, businesses: Sequence[Business]) -> None:
    """Set the webhook of each number, and send to its recipients until their sessions are established. The rate of a
    number is below its limit.
    """
    for business in businesses:
        await connected(business)
        await business.set_webhook(scene.sink.url)
    for turn in range(messages.WARM_UP_ROUNDS):
        async with asyncio.TaskGroup() as group:
            for index, business in enumerate(businesses):
                work = [(number, f"warm-up {turn}: ".ljust(contents.TEXT, ".")) for number in recipients_of(index)]
                group.create_task(client.open_loop(business, work, WARM_UP_RATE))
        await messages.wait_complete(scene, (turn + 1) * len(businesses) * EACH)


async def measure_rate(prepared: Stage, numbers: Numbers, name: str, title: str, *, count: int, share: int) -> Run:
    """Measure `count` messages of 64 clients that share the first `share` numbers. Raises `RunFailed` and others."""
    async with prepared.performance(name) as scene:
        businesses = numbers.clients(scene)
        if share == 1:
            await messages.warm_up(scene, stage.recipients(ROBOTS, ROBOTS), CLIENTS)
        else:
            await warm_up(scene, businesses)
        work = [contents.text(to, f"{i}: ") for i, to in enumerate(stage.recipients(ROBOTS, count))]
        async with messages.measured(scene, count) as found:
            await client.closed_loop(SharedClients(businesses[:share]), work, CLIENTS, load=found.load)
        return found.run(name, title, parameters={"numbers": share})


async def measure_others(prepared: Stage, numbers: Numbers, name: str, title: str, *, seconds: int, flood: bool) -> Run:
    """Measure the latencies of numbers below their limit, while another number is flooded, or alone.

    Raises `RunFailed` and others. Rate and first latencies of the run are those of the numbers below their limit.
    """
    limits = {"TIDINGS_MESSAGES_RATE": str(LIMIT)}
    async with prepared.performance(name, limits) as scene:
        businesses = numbers.clients(scene)[: QUIET + 1]
        await warm_up(scene, businesses)
        async with messages.measured(scene) as found:
            start = time.time() + CONNECTING
            async with asyncio.TaskGroup() as group:
                flooding = group.create_task(_flood(scene, start, seconds)) if flood else None
                await asyncio.sleep(start - time.time())
                for index, business in enumerate(businesses[1:], start=1):
                    work = [
                        (recipients_of(index)[i % EACH], f"{index} {i}: ".ljust(contents.TEXT, "."))
                        for i in range(int(QUIET_RATE * seconds))
                    ]
                    group.create_task(client.open_loop(business, work, QUIET_RATE, load=found.load))
            refused = [sent for sent in found.load.sent if not sent.request.accepted]
            if refused:
                raise RunFailed(f"{len(refused)} messages of numbers below their limit were refused")
            took = [sent.took for sent in found.load.sent]
            flooded = flooding.result() if flooding is not None else []
            found.load.sent += flooded
        accepted = sum(sent.request.accepted for sent in flooded)
        run = found.run(name, title, details={"flood_sent": len(flooded), "flood_accepted": accepted})
        latencies = {"others: POST /v1/messages": summary.summarise(took), **run.latencies}
        return dataclasses.replace(run, count=len(took), seconds=seconds, rate=len(took) / seconds, latencies=latencies)


async def _flood(scene: Scene, start: float, seconds: int) -> list[Sent]:
    parameters = FloodParameters(
        ports=[scene.business.port],
        token=scene.business.token,
        clients=CLIENTS,
        rate=LIMIT * FACTOR,
        seconds=seconds,
        start=start,
        numbers=recipients_of(0),
        label="flood",
        output=str(scene.installation.directory / "flood.msgpack"),
    )
    result = await overload.send_apart(scene, "clients", parameters)
    return [
        Sent(ledger.Request(one.number, one.digest, one.status or None, one.id), one.started, one.took)
        for one in result.requests
    ]


async def measure(current: Session) -> None:
    """Measure the rates, then the latencies during a flood, in alternating rounds. Raises `RunFailed`."""
    quick, rounds = current.options.quick, current.options.rounds
    numbers = Numbers()
    set_up = functools.partial(add_all, numbers)
    async with stage.prepared(current, robots=ROBOTS, set_up=set_up) as prepared:
        if current.is_wanted("rate"):
            count = QUICK if quick else MESSAGES
            one, twenty = (
                Variant(
                    name,
                    title,
                    functools.partial(measure_rate, prepared, numbers, name, title, count=count, share=share),
                )
                for name, title, share in (("one", "one number", 1), ("twenty", f"{NUMBERS} numbers", NUMBERS))
            )
            await current.alternate(one, twenty, rounds=rounds)
            ratio = current.report.ratios[-1]
            if not quick and ratio.value is not None and ratio.value < LEAST:
                raise RunFailed(f"{ratio}: {NUMBERS} numbers reach less than {LEAST:.0%} of the rate of one")
        if current.is_wanted("flood"):
            await _measure_floods(current, prepared, numbers, rounds)


async def _measure_floods(current: Session, prepared: Stage, numbers: Numbers, rounds: int) -> None:
    seconds = QUICK_SECONDS if current.options.quick else SECONDS
    found: Mapping[str, list[float]] = {"calm": [], "flooded": []}
    for _ in range(rounds):
        for name, title in (("calm", f"{QUIET} numbers"), ("flooded", f"{QUIET} numbers during a flood")):
            run = await current.once(
                Variant(
                    name,
                    title,
                    functools.partial(
                        measure_others, prepared, numbers, name, title, seconds=seconds, flood=name == "flooded"
                    ),
                )
            )
            if run is not None:
                found[name].append(run.latencies["others: POST /v1/messages"].p99)
    if not all(found.values()):
        return
    change = statistics.median(found["flooded"]) - statistics.median(found["calm"])
    current.report.notes.append(
        f"Median p99 of the others: {statistics.median(found['calm']):.1f} ms alone, "
        f"{statistics.median(found['flooded']):.1f} ms during the flood ({change:+.1f} ms)."
    )
    if not current.options.quick and change > MOST_MS:
        raise RunFailed(
            f"the flood of one number moves the p99 of the others by {change:.1f} ms, more than {MOST_MS} ms"
        )


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--rounds", type=int, default=5, help="of each pair of runs (default %(default)s)")


BENCHMARK = Benchmark(
    name="numbers",
    title="Several numbers",
    how=HOW,
    measure=measure,
    names=["rate", "flood"],
    calibrations=calibrations.COMMON,
    add_options=add_options,
)

if __name__ == "__main__":
    session.main(BENCHMARK, __doc__)
