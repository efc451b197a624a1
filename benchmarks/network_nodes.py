"""Many devices on several network nodes: memory, traffic between nodes, and reconnects after a node is killed.

    python -m benchmarks.network_nodes [--devices 20000] [--nodes 2]

The nodes are processes on a private MariaDB and a private Redis. The devices are connections of this process, each on
its own socket, with full jitter between attempts. Also measured: an envelope to a device on another node and its reply
(`echo`), messages of the operator to one device (`send to user`) and to all (`broadcast`). Checks that everything
accepted has arrived.
"""

from __future__ import annotations

import argparse
import asyncio
import dataclasses
import json
import resource
import statistics
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import aiohttp
import psutil
import uvloop

from harness import processes
from harness.light_devices import LightDevice, LightDevices, register
from harness.mariadb import MariaDB, free_port
from harness.redis_server import RedisServer
from tidings.wire import device

KEY = "the registration key of benchmarks"
API_KEY = "the key of benchmarks"
ECHOES, TO_USERS, BROADCASTS = 3000, 500, 3
WINDOW = 64  # echoes in flight


@dataclasses.dataclass
class Node:
    process: processes.Process
    http: str
    tcp: tuple[str, int]

    @property
    def rss(self) -> int:
        assert self.process.pid is not None
        return int(psutil.Process(self.process.pid).memory_info().rss)

    @property
    def cpu(self) -> float:
        assert self.process.pid is not None
        return processes.usage(self.process.pid).cpu


def environment(data_dir: Path, mariadb: MariaDB, redis: RedisServer, devices: int, name: str) -> tuple[Any, Any]:
    ports = free_port(), free_port()
    variables = {
        "TIDINGS_DATA_DIR": str(data_dir),
        "TIDINGS_EMBEDDED": "1",
        "TIDINGS_NETWORK_DB_URL": mariadb.url("nodes"),
        "TIDINGS_REGISTRATION_KEY": KEY,
        "WA_API_KEY": API_KEY,
        "TIDINGS_REDIS_URL": redis.url,
        "TIDINGS_NETWORK_NODE": name,
        "TIDINGS_NETWORK_HTTP_ADDRESS": f"127.0.0.1:{ports[0]}",
        "TIDINGS_NETWORK_TCP_ADDRESS": f"127.0.0.1:{ports[1]}",
        "TIDINGS_NETWORK_CONNECTIONS": str(2 * devices + 1000),
        # Devices that are not being measured stay silent for longer than real ones may.
        "TIDINGS_NETWORK_IDLE_S": "3600",
        "TIDINGS_NETWORK_PAIR_RATE": "0",
    }
    return variables, ports


async def start(directory: Path, mariadb: MariaDB, redis: RedisServer, given: argparse.Namespace) -> list[Node]:
    with mariadb.connect() as connection, connection.cursor() as cursor:
        cursor.execute("CREATE DATABASE nodes CHARACTER SET utf8mb4")
    nodes = []
    for index in range(given.nodes):
        variables, ports = environment(directory, mariadb, redis, given.devices, f"node-{index}")
        process = processes.Process(f"node-{index}", "network", variables, directory)
        await process.start()
        nodes.append(Node(process, f"http://127.0.0.1:{ports[0]}", ("127.0.0.1", ports[1])))
    return nodes


async def connect(crowd: LightDevices, nodes: Sequence[Node]) -> Mapping[str, Any]:
    before, began = [node.rss for node in nodes], time.monotonic()
    await crowd.connect(seconds=900)
    seconds = time.monotonic() - began
    per_connection = (sum(node.rss for node in nodes) - sum(before)) / len(crowd.devices)
    return {
        "seconds to connect and attach all": round(seconds, 1),
        "memory of a node before, MiB": round(statistics.mean(before) / 2**20, 1),
        "memory of a connection with its device, KiB": round(per_connection / 1024, 1),
    }


async def echo(crowd: LightDevices, nodes: Sequence[Node]) -> Mapping[str, Any]:
    """Send envelopes between devices, half of them on another node; each recipient sends one back."""
    numbers = list(crowd.devices)
    sent: dict[str, float] = {}
    times: list[float] = []

    def delivered(receiver: LightDevice, frame: device.Deliver) -> None:
        if frame.id.startswith("e"):
            receiver.send(frame.sender, "a" + frame.id)
        elif frame.id[1:] in sent:
            times.append(time.monotonic() - sent[frame.id[1:]])
            crowd.changed()

    crowd.on_delivery = delivered
    began, cpu = time.monotonic(), sum(node.cpu for node in nodes)
    for index in range(ECHOES):
        await crowd.until(lambda index=index: index - len(times) < WINDOW)  # type: ignore[misc]
        sender, to = numbers[index % len(numbers)], numbers[(7 * index + 1) % len(numbers)]
        if sender == to:
            to = numbers[(index + 1) % len(numbers)]
        sent[f"e{index}"] = time.monotonic()
        crowd.devices[sender].send(to, f"e{index}")
    await crowd.until(lambda: len(times) == ECHOES)
    seconds, used = time.monotonic() - began, sum(node.cpu for node in nodes) - cpu
    crowd.on_delivery = lambda *_: None
    cuts = statistics.quantiles(times, n=100)
    return {
        "echoes a second": round(ECHOES / seconds),
        "echo p50, ms": round(cuts[49] * 1000, 1),
        "echo p99, ms": round(cuts[98] * 1000, 1),
        "CPU of all nodes for an envelope, µs": round(used / ECHOES / 2 * 1e6),
    }


async def announce(crowd: LightDevices, nodes: Sequence[Node]) -> Mapping[str, Any]:
    numbers = list(crowd.devices)
    moments: list[float] = []

    def delivered(receiver: LightDevice, frame: device.Deliver) -> None:
        if frame.kind == device.ANNOUNCEMENT:
            moments.append(time.monotonic())
            crowd.changed()

    crowd.on_delivery = delivered
    headers = {"Authorization": f"Apikey {API_KEY}"}
    async with aiohttp.ClientSession(nodes[0].http, headers=headers) as http:
        began = time.monotonic()
        for index in range(TO_USERS):
            url = f"/v1/announcements/{numbers[index % len(numbers)]}"
            async with http.post(url, json={"text": "x" * 2048}) as response:
                assert response.status == 202, await response.text()
        await crowd.until(lambda: len(moments) == TO_USERS)
        to_users = time.monotonic() - began
        times = []
        for _ in range(BROADCASTS):
            moments.clear()
            began = time.monotonic()
            async with http.post("/v1/announcements", json={"text": "x" * 2048}) as response:
                said = await response.json()
            assert said == {"devices": len(numbers), "nodes": len(nodes)}, said
            await crowd.until(lambda: len(moments) == len(numbers))
            times.append(moments[-1] - began)
    crowd.on_delivery = lambda *_: None
    return {
        "send to user, a second (one after the other, 2 KiB)": round(TO_USERS / to_users),
        "broadcast of 2 KiB to all, s": round(statistics.median(times), 2),
        "broadcast, deliveries a second": round(len(numbers) / statistics.median(times)),
    }


async def death(crowd: LightDevices, nodes: Sequence[Node]) -> Mapping[str, Any]:
    """Kill the last node: its devices reconnect to the others, and envelopes sent to them in between arrive."""
    there = crowd.attached
    began = time.monotonic()
    crowd.addresses = [node.tcp for node in nodes[:-1]]
    await nodes[-1].process.kill9()
    await crowd.until(lambda: crowd.attached < there)
    lost = there - crowd.attached
    sender = next(each for each in crowd.devices.values() if each.is_attached)
    targets = [number for number, each in crowd.devices.items() if not each.is_attached][:1000]
    for number in targets:
        sender.send(number, f"d{number}")
    moments: dict[str, float] = {}
    for share in (0.5, 0.9, 0.99, 1.0):
        await crowd.until(lambda share=share: crowd.attached >= there - lost * (1 - share), 900)  # type: ignore[misc]
        moments[f"back after the death of a node, {share:.0%} of {lost}, s"] = round(time.monotonic() - began, 1)
    await crowd.until(lambda: not sender.pending, 120)
    await crowd.until(lambda: all(crowd.devices[number].received[f"d{number}"] for number in targets), 120)
    survivors = nodes[:-1]
    return {
        **moments,
        "memory of a node with all of them, MiB": round(max(node.rss for node in survivors) / 2**20, 1),
        "envelopes sent meanwhile, all of which arrived": len(targets),
    }


async def main(given: argparse.Namespace) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = given.devices + 2000
    if hard != resource.RLIM_INFINITY and hard < needed:
        sys.exit(f"{given.devices} devices need {needed} descriptors here, and there may be {hard}: ulimit -n {needed}")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(needed, soft), hard))
    mariadb, redis = MariaDB(flush_log=0), RedisServer()
    with tempfile.TemporaryDirectory() as directory:
        mariadb.start()
        redis.start()
        nodes = await start(Path(directory), mariadb, redis, given)
        numbers = [f"15551{index:06}" for index in range(given.devices)]
        began = time.monotonic()
        tokens = await register(nodes[0].http, KEY, numbers)
        results: dict[str, Any] = {"devices": given.devices, "nodes": given.nodes}
        results["seconds to register all"] = round(time.monotonic() - began, 1)
        crowd = LightDevices([node.tcp for node in nodes], tokens)
        try:
            for measure in (connect, echo, announce, death):
                found = await measure(crowd, nodes)
                results.update(found)
                print(json.dumps(found, ensure_ascii=False), flush=True)
        finally:
            await crowd.close()
            await asyncio.gather(*[node.process.stop() for node in nodes])
            redis.remove()
            mariadb.remove()
    print("\n| | |\n|---|--:|")
    for name, value in results.items():
        print(f"| {name} | {value:,} |")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--devices", type=int, default=20_000)
    parser.add_argument("--nodes", type=int, default=2)
    uvloop.run(main(parser.parse_args()))
