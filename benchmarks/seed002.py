"""Notifications of 4 KB to connected clients that acknowledge them, at 1,000 per second; round trips in volleys.

    python -m benchmarks.seed002 [--quick] [--only NAME ...] [--rate 1000]

From 19,500 connections on there are several nodes, with Redis, since a process may open 20,000 files here. Latency is
measured from just before the sender writes an envelope until its recipient has decoded it.

The runs `steady-…` write to each recipient before the measurement, and to at most 15,000 of the connections. The runs
`turns-…` measure the first message to each device too, and write to all connections in turn.
"""

from __future__ import annotations

import argparse
import asyncio
import functools
import itertools
import statistics
import time

from benchmarks import calibrations
from benchmarks.devices.api import through_api
from benchmarks.devices.clients import FIRST_RATE, SENDER, Clients, connect
from benchmarks.devices.network import most_connections, network_of
from benchmarks.rig import report, session, summary
from benchmarks.rig.run import Run, RunFailed
from benchmarks.rig.session import Benchmark, Session, Variant
from harness.fleet_device import TCP, WS_JSON, WS_MSGPACK

SIZE = 4096
RATE, SECONDS, QUICK_SECONDS = 1000.0, 30, 5
WAYS = {TCP: "TCP", WS_JSON: "WebSocket, JSON", WS_MSGPACK: "WebSocket, MessagePack"}
# Of more connections than this, only every n-th receives notifications in the runs `steady-…`.
RECIPIENTS = 15_000
# (connections, transport)
STEADY = ((1000, TCP), (1000, WS_JSON), (10_000, TCP), (10_000, WS_JSON), (100_000, TCP))
# Connections over TCP that are all written to in turn, without a message before the measurement.
TURNS = (1000, 10_000, 100_000)
# Texts per second over the API, and the number of idle connections.
API_RATES, API_IDLE = (100, 250, 500, 1000), 10_000
# Volleys of the published table.
MESSAGES, SIZES, CLIENTS, SAMPLES = (1, 10, 100, 1000), (1536, 4096), (1, 100), 10
# Samples of the largest volleys, 100,000 messages each.
FEW_SAMPLES = 3
# MiB of undecided envelopes, an eighth of it per sender: a volley has one sender.
UNDER_WAY = 1024
# The published table, ms: MQTT, WebSocket, gRPC by (clients, size, messages).
PUBLISHED = {
    (1, 1536): ((9.5, 3.1, 2.7), (30.6, 11.0, 9.4), (128.5, 53.0, 72.3), (674.2, 444.3, 501.2)),
    (1, 4096): ((12.7, 5.1, 4.0), (25.0, 15.4, 10.7), (114.4, 67.8, 71.7), (685.1, 511.3, 514.7)),
    (100, 1536): ((62.8, 7.0, 8.6), (339.6, 55.5, 61.3), (3155.9, 491.0, 614.3), (31101.9, 4878.5, 6219.4)),
    (100, 4096): ((70.2, 10.0, 10.3), (354.2, 72.0, 62.3), (3274.9, 694.9, 631.1), (32833.4, 6910.7, 6391.0)),
}
# Devices, half of which disconnect.
DEVICES = 1000


async def steady(current: Session, count: int, transport: str) -> Run:
    """Send one envelope to every recipient, then measure notifications at the rate."""
    return await _notified(current, count, transport, with_first=False)


async def in_turn(current: Session, count: int) -> Run:
    """Measure notifications at the rate to all connections in turn, of which the first ones are first messages."""
    return await _notified(current, count, TCP, with_first=True)


async def _notified(current: Session, count: int, transport: str, *, with_first: bool) -> Run:
    seconds = QUICK_SECONDS if current.options.quick else SECONDS
    per_second: float = current.options.rate
    nodes = -(-count // most_connections())
    async with network_of(current, nodes=nodes) as network:
        empty = sum(node.memory for node in network.nodes)
        clients = await connect(network, count, transport)
        memory = (sum(node.memory for node in network.nodes) - empty) / count
        some = clients.numbers if with_first else clients.numbers[:: -(-count // RECIPIENTS)]
        sent = max(int(per_second * seconds), len(some) if with_first else 0)
        first = {}
        if not with_first:
            await clients.send(some, rate=FIRST_RATE, count=len(some), size=SIZE)
            first["the first to each device"] = summary.summarise(await clients.latencies())
        async with network.sampler() as sampler:
            said = await clients.send(some, rate=per_second, count=sent, size=SIZE)
        times = summary.summarise(await clients.latencies())
        title = f"{count:,} connections over {WAYS[transport]}, {nodes} node{'s' * (nodes > 1)}"
        return Run(
            name=f"turns-{count}" if with_first else f"steady-{transport}-{count}",
            title=title + ", all in turn, first messages included" * with_first + _rate_in_title(per_second),
            count=sent,
            unit="notifications",
            seconds=said["sent_in"],
            rate=sent / said["sent_in"],
            latencies={"to the device": times, **first},
            throughput=[sent / said["sent_in"]] * round(sent / per_second),
            samples=sampler.samples,
            parameters={
                "connections": count,
                "recipients": min(len(some), sent),
                "first messages": min(len(some), sent) if with_first else 0,
                "link": transport,
                "nodes": nodes,
                "bytes": SIZE,
                "rate": per_second,
            },
            details={"bytes_of_a_connection": round(memory), "sender_late_ms": round(said["lag"] * 1000, 1)},
        )


def _rate_in_title(per_second: float) -> str:
    return "" if per_second == RATE else f", {per_second:,.0f} per second"


async def volleys(current: Session, transport: str) -> Run:
    """Measure round trips: `messages` envelopes to each client at once, and all their acknowledgements back."""
    async with network_of(current, settings={"TIDINGS_NETWORK_UNDECIDED_MB": str(UNDER_WAY)}) as network:
        clients = await connect(network, max(CLIENTS), transport)
        # No sender and recipient are new to each other during the measurement.
        await clients.send(clients.numbers, rate=FIRST_RATE, count=len(clients.numbers), size=SIZE)
        quick = current.options.quick
        rows: dict[tuple[int, int], list[float]] = {}
        total, began, every = 0, time.monotonic(), []
        async with network.sampler() as sampler:
            for count, size, messages in itertools.product(CLIENTS, SIZES, MESSAGES):
                samples = 2 if quick else SAMPLES if count * messages < 100_000 else FEW_SAMPLES
                took = await volley(clients, count, size, messages, samples)
                rows.setdefault((count, size), []).append(statistics.fmean(took) * 1000)
                total += count * messages * samples
                every += took
        seconds = time.monotonic() - began
        return Run(
            name=f"volleys-{transport}",
            title=f"volleys over {WAYS[transport]}",
            count=total,
            unit="round trips",
            seconds=seconds,
            rate=total / seconds,
            latencies={"a volley": summary.summarise(every)},
            throughput=[],
            samples=sampler.samples,
            parameters={"link": transport, "samples": SAMPLES, "samples of the greatest": FEW_SAMPLES},
            details={"ms": {f"{count}x{size}": [round(ms, 2) for ms in row] for (count, size), row in rows.items()}},
        )


async def volley(clients: Clients, count: int, size: int, messages: int, samples: int) -> list[float]:
    """Return the seconds of each sample of each client. Raises `RunFailed` when an envelope is missing."""
    await clients.reset()
    pairs = [(SENDER, number) for number in clients.numbers[:count]]
    took: list[float] = await clients.sender.request(
        "volley", pairs=pairs, messages=messages, size=size, samples=samples
    )
    await clients.until_delivered(count * messages * samples)
    return took


async def redelivery(current: Session, transport: str) -> Run:
    """Disconnect half of the devices and send to them; envelopes with a short ttl have expired when they reconnect."""
    async with network_of(current, settings={"TIDINGS_NETWORK_EXPIRY_INTERVAL_S": "0.5"}) as network:
        clients = await connect(network, DEVICES, transport)
        await clients.send(clients.numbers, rate=FIRST_RATE, count=DEVICES, size=SIZE)
        away, fleet = clients.numbers[: DEVICES // 2], clients.fleets[0]
        async with network.sampler() as sampler:
            await fleet.request("disconnect", numbers=away)
            await fleet.request("until_fewer", count=DEVICES - len(away) + 1, seconds=30)
            await clients.reset()
            routes = [(SENDER, number) for number in away]
            lasting = await clients.sender.send(routes, rate=FIRST_RATE, count=3 * len(away), size=SIZE)
            brief = await clients.sender.send(routes, rate=FIRST_RATE, count=len(away), size=SIZE, ttl=1)
            if lasting["refused"] or brief["refused"]:
                raise RunFailed(f"refused: {lasting}, {brief}")
            # The sender is notified of each expired envelope.
            async with asyncio.timeout(60):
                while (await clients.sender.counts())["others"] < len(away):  # noqa: ASYNC110 (another process counts)
                    await asyncio.sleep(0.1)
            await fleet.request("reconnect")
            seconds = await clients.until_delivered(3 * len(away))
        return Run(
            name=f"redelivery-{transport}",
            title=f"redelivery to {len(away)} that return over {WAYS[transport]}",
            count=3 * len(away),
            unit="redeliveries",
            seconds=seconds,
            rate=3 * len(away) / seconds,
            latencies={"from its sending": summary.summarise(await clients.latencies())},
            throughput=[],
            samples=sampler.samples,
            parameters={"link": transport, "away": len(away)},
            details={"expired": len(away)},
        )


async def measure(current: Session) -> None:
    """Carry out the wanted runs."""
    for count, transport in STEADY:
        name = f"steady-{transport}-{count}"
        if current.is_wanted(name):
            await current.once(Variant(name, name, functools.partial(steady, current, count, transport)))
    for count in TURNS:
        name = f"turns-{count}"
        if current.is_wanted(name):
            await current.once(Variant(name, name, functools.partial(in_turn, current, count)))
    for rate in API_RATES:
        name = f"api-{rate}"
        if current.is_wanted(name):
            idle, seconds = (500, QUICK_SECONDS) if current.options.quick else (API_IDLE, SECONDS)
            await current.once(Variant(name, name, functools.partial(through_api, current, idle, rate, seconds)))
    found: dict[str, Run] = {}
    for transport, title in WAYS.items():
        name = f"volleys-{transport}"
        if current.is_wanted(name):
            run = await current.once(
                Variant(name, f"volleys over {title}", functools.partial(volleys, current, transport))
            )
            if run is not None:
                found[title] = run
    if found:
        current.report.notes += table(found)
    for transport in (TCP, WS_JSON):
        name = f"redelivery-{transport}"
        if current.is_wanted(name):
            await current.once(Variant(name, name, functools.partial(redelivery, current, transport)))


def table(found: dict[str, Run]) -> list[str]:
    """Return tables in the layout of the published one, with its figures next to ours."""
    notes = []
    for count in CLIENTS:
        rows = []
        for size in SIZES:
            for index, messages in enumerate(MESSAGES):
                ours = [f"{run.details['ms'][f'{count}x{size}'][index]:,}" for run in found.values()]
                theirs = [f"{value:,}" for value in PUBLISHED[count, size][index]]
                rows.append([f"{messages} Message{'s' * (messages > 1)} ({size / 1024:g} KB)", *ours, *theirs])
        header = ["Type", *found, "published: MQTT", "published: Websockets", "published: GRPC"]
        clients = f"{count} client{'s' * (count > 1)} connected"
        notes.append(
            f"Mean of a volley and its acknowledgements, ms, {clients}:\n\n" + "\n".join(report.table(header, rows))
        )
    return notes


def add_options(parser: argparse.ArgumentParser) -> None:
    words = "notifications per second of the runs steady-… and turns-… (%(default)g)"
    parser.add_argument("--rate", type=float, default=RATE, help=words)


BENCHMARK = Benchmark(
    name="seed002",
    title="Notifications of 4 KB to connected clients, with acknowledgement",
    how=f"""A sender gives the network an envelope, the network delivers it to the device, the device acknowledges, the
network tells the sender. {RATE:,.0f} a second to everybody in turn, from one process to others; *to the device* is from
just before the sender writes it to when the device has decoded it. The published service has the sender within the
server; ours is a client of it, so there is one hop more in each figure. Recipients have received a message before the
measurement, and of 100,000 connections every seventh is written to, but for the runs that say otherwise: there all
connections are written to in turn, and the first message to each is measured. In a volley all are written to at
once.""",
    measure=measure,
    calibrations=calibrations.COMMON,
    add_options=add_options,
    names=[
        *(f"steady-{transport}-{count}" for count, transport in STEADY),
        *(f"turns-{count}" for count in TURNS),
        *(f"api-{rate}" for rate in API_RATES),
        *(f"volleys-{transport}" for transport in WAYS),
        *(f"redelivery-{transport}" for transport in (TCP, WS_JSON)),
    ],
)

if __name__ == "__main__":
    session.main(BENCHMARK, __doc__)
