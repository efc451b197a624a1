"""Delivery to connected clients: one sender and many devices with a connection each, driven by one Go program.

Tidings is a real network process on MariaDB. Each device acknowledges each message to the sender: with Tidings by the
network's `accepted`, with the others by a message that the device sends back, because their own acknowledgements only
mean that the server has the message.
"""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import json
import secrets
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.peers import install, stores
from benchmarks.peers.process import Program, TreeSampler
from benchmarks.rig.run import Run, RunFailed
from benchmarks.rig.summary import Summary
from harness import light_devices
from harness.mariadb import MariaDB, free_port
from harness.processes import Process

DEVICES, SIZE, RATE = 1000, 4096, 1000
# Messages in flight at the highest rate.
WINDOW = 1000
SENDER = "15550000000"
# Name of the process that has the sender and all devices.
CLIENTS = "clients"

TABLE_MESSAGES, TABLE_SIZES, TABLE_CLIENTS = (1, 10, 100, 1000), (1536, 4096), (1, 100)
# Samples as in the published table; fewer where a sample has 100,000 messages.
SAMPLES, SAMPLES_OF_MANY = 10, 2

AT_MOST_ONCE = "none: kept nowhere, lost when the client is away"


@dataclasses.dataclass(frozen=True, slots=True)
class DeliveryPath:
    """Path of messages to devices."""

    name: str
    title: str
    protocol: str
    server: str  # in between: `tidings`, one of our Go programs, or the name of a store
    acks: bool
    durability: str


WAYS = (
    DeliveryPath(
        "tidings",
        "Tidings' network, TCP",
        "tidings",
        "tidings",
        True,
        "accepted when the device has it or it is on disk; again after a reconnect",
    ),
    DeliveryPath("nats", "NATS core", "nats", "nats", False, AT_MOST_ONCE),
    DeliveryPath("nats-acks", "NATS core, devices answer", "nats", "nats", True, AT_MOST_ONCE),
    DeliveryPath(
        "centrifuge", "Centrifuge (Centrifugo's library), WebSocket", "centrifuge", "centrifuge", False, AT_MOST_ONCE
    ),
    DeliveryPath("centrifuge-acks", "Centrifuge, devices answer", "centrifuge", "centrifuge", True, AT_MOST_ONCE),
    DeliveryPath(
        "mosquitto", "MQTT, Mosquitto, QoS 1, devices answer", "mqtt", "mosquitto", True, "none: kept in memory"
    ),
    DeliveryPath(
        "mochi", "MQTT, mochi-mqtt (Go), QoS 1, devices answer", "mqtt", "mochi", True, "none: kept in memory"
    ),
    DeliveryPath("grpc", "gRPC (Go), a hub of our own, devices answer", "grpc", "grpc", True, AT_MOST_ONCE),
)
# In the published test the server itself sends.
DIRECT = DeliveryPath("grpc-direct", "gRPC (Go), the server sends", "grpc-direct", "", True, AT_MOST_ONCE)
_TABLE_NAMES = ("tidings", "mosquitto", "mochi", "centrifuge-acks", "grpc")
TABLE_WAYS = (*(path for path in WAYS if path.name in _TABLE_NAMES), DIRECT)


@dataclasses.dataclass(frozen=True, slots=True)
class _Server:
    """Server that is measured."""

    address: str  # for sender and devices
    pids: Mapping[str, int]  # its processes
    words: Sequence[str] = ()  # further arguments of the driver


@contextlib.asynccontextmanager
async def _serve(path: DeliveryPath, devices: int, directory: Path) -> AsyncIterator[_Server]:
    if path.server == "tidings":
        async with _tidings(devices, directory) as server:
            yield server
    elif path.server in ("nats", "mosquitto"):
        store = stores.Nats(keeps=False) if path.server == "nats" else stores.Mosquitto()
        try:
            store.start()
            yield _Server(store.address, {"server": store.pid})
        finally:
            store.remove()
    else:
        address = f"127.0.0.1:{free_port()}"
        if not path.server:
            yield _Server(address, {})
            return
        command: list[str | Path] = [install.PEERS, path.server, "-address", address]
        async with Program(path.server, command, directory) as program:
            yield _Server(address, {"server": program.pid})


@contextlib.asynccontextmanager
async def _tidings(devices: int, directory: Path) -> AsyncIterator[_Server]:
    """Run the network as a process, on a MariaDB that commits to disk, with all numbers registered."""
    key, database, data = secrets.token_hex(16), MariaDB(flush_log=1), directory / "network"
    data.mkdir()
    environment = {
        "TIDINGS_DATA_DIR": str(data),
        "TIDINGS_EMBEDDED": "1",
        "TIDINGS_REGISTRATION_KEY": key,
        "TIDINGS_NETWORK_HTTP_ADDRESS": "127.0.0.1:0",
        "TIDINGS_NETWORK_TCP_ADDRESS": "127.0.0.1:0",
        # One sender sends everything.
        "TIDINGS_NETWORK_PAIR_RATE": "0",
        "TIDINGS_NETWORK_MAILBOX_SHARE_ENVELOPES": "1000000",
        "TIDINGS_NETWORK_MAILBOX_SHARE_MB": "4096",
    }
    database.start()
    network = Process("network", "network", environment | {"TIDINGS_NETWORK_DB_URL": database.url("net")}, directory)
    try:
        where = await network.start()
        numbers = [SENDER, *(f"1555100{device:04}" for device in range(devices))]
        tokens = await light_devices.register(f"http://{_address(where['http'])}", key, numbers)
        path = directory / "tokens.json"
        path.write_text(json.dumps(tokens))
        assert network.pid is not None
        assert database.pid is not None
        pids = {"network": network.pid, "store": database.pid}
        yield _Server(_address(where["tcp"]), pids, ("-tokens", str(path)))
    finally:
        await network.stop()
        database.remove()


def _address(said: str | Sequence[Any]) -> str:
    return said if isinstance(said, str) else f"{said[0]}:{said[1]}"


@contextlib.asynccontextmanager
async def _driver(path: DeliveryPath, server: _Server, devices: int, directory: Path) -> AsyncIterator[Program]:
    command: list[str | Path] = [install.PEERS, "deliver", "-protocol", path.protocol, "-address", server.address]
    command += ["-devices", str(devices), f"-acks={str(path.acks).lower()}", *server.words]
    async with Program(f"clients-{path.name}", command, directory) as driver:
        yield driver


async def measure(path: DeliveryPath, seconds: float, directory: Path) -> Run:
    """Deliver 4 KB to 1,000 clients: at 1,000 per second, then at the highest rate.

    Raises `RunFailed` and `ProcessEnded`.
    """
    async with (
        _serve(path, DEVICES, directory) as server,
        _driver(path, server, DEVICES, directory) as driver,
    ):
        pids = {**server.pids, CLIENTS: driver.pid}
        reconcile(path, await driver.request(do="most", seconds=1.0, window=WINDOW, size=SIZE))
        async with TreeSampler(pids) as steadily:
            steady = await driver.request(do="rate", seconds=seconds, rate=RATE, size=SIZE)
        reconcile(path, steady)
        async with TreeSampler(pids) as watched:
            most = await driver.request(do="most", seconds=seconds, window=WINDOW, size=SIZE)
        reconcile(path, most)
    latencies = {"at 1,000/s, to the device": Summary(**steady["device_ms"])}
    if path.acks:
        latencies["at 1,000/s, acknowledged"] = Summary(**steady["ack_ms"])
    latencies["at the most, to the device"] = Summary(**most["device_ms"])
    messages = steady["messages"]
    # Both figures are in one row.
    shares = max((steadily.samples.shares, watched.samples.shares), key=lambda one: one.others)
    return Run(
        name=f"delivery-{path.name}",
        title=path.title,
        count=most["messages"],
        unit="messages",
        seconds=most["seconds"],
        rate=most["messages"] / most["seconds"],
        latencies=latencies,
        throughput=most["per_second"],
        samples=dataclasses.replace(watched.samples, shares=shares),
        parameters={"durability": path.durability, "acknowledged": path.acks},
        details={"steady_cpu_us": {name: round(used / messages * 1e6) for name, used in steadily.samples.cpu.items()}},
    )


def reconcile(path: DeliveryPath, found: Mapping[str, Any]) -> None:
    """Check that all messages arrived and were acknowledged. Raises `RunFailed`."""
    messages = found["messages"]
    if not messages or found["arrived"] != messages or found["faults"] or (path.acks and found["acked"] != messages):
        raise RunFailed(f"{path.name}: {found}")


async def measure_table(path: DeliveryPath, directory: Path, samples: int) -> Run:
    """Measure the published table's cells, in `details`: mean ms until a client's messages are all acknowledged."""
    cells: dict[str, float] = {}
    for clients in TABLE_CLIENTS:
        # Only the last number of clients is sampled, and so counted.
        total, seconds = 0, 0.0
        here = directory / f"{clients}"
        here.mkdir()
        async with (
            _serve(path, clients, here) as server,
            _driver(path, server, clients, here) as driver,
        ):
            await driver.request(do="table", size=TABLE_SIZES[0], messages=100, clients=clients, samples=2)
            async with TreeSampler({**server.pids, CLIENTS: driver.pid}) as watched:
                for size, messages in itertools.product(TABLE_SIZES, TABLE_MESSAGES):
                    count = min(samples, SAMPLES_OF_MANY) if messages * clients > 10_000 else samples
                    found = await driver.request(
                        do="table", size=size, messages=messages, clients=clients, samples=count
                    )
                    if found["faults"]:
                        raise RunFailed(f"{path.name}: {found}")
                    cells[f"{clients}/{size}/{messages}"] = found["mean_ms"]
                    total += found["messages"]
                    seconds += found["seconds"]
    return Run(
        name=f"table-{path.name}",
        title=f"table: {path.title}",
        count=total,
        unit="messages",
        seconds=seconds,
        rate=total / seconds,
        latencies={},
        throughput=[],
        samples=watched.samples,
        parameters={"durability": path.durability},
        details={"cells": cells},
    )
