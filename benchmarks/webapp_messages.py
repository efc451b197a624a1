"""CPU of a Webapp per `POST /v1/messages`, between raw HTTP clients and a scripted Coreapp.

    python -m benchmarks.webapp_messages [--clients 64] [--messages 20000] [--profile FILE]

Exits with 1 when a response is not 201 or an id occurs twice. On 2 quiet shared cores, including load clients and
Coreapp: 64 clients 6,100/s at 163 µs per message, 4 clients 4,500/s at 205 µs; a bare FastAPI route with a body model
takes 115 µs.
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import psutil
import uvloop

from tidings.wire import connection as wire
from tidings.wire import core

LINK_KEY = "link key of the benchmark"
PASSWORD = "Benchmark-1!"


class Coreapp:
    """Coreapp that accepts everything at once."""

    def __init__(self) -> None:
        self.accepted = 0

    def opened(self, connection: wire.Connection) -> None: ...

    def received(self, connection: wire.Connection, frame: Any) -> None:
        if isinstance(frame, core.AcceptMessage):
            self.accepted += 1
            connection.send(core.Accepted(n=frame.n, id=f"gBEG{self.accepted}", wa_id=frame.to))
        else:
            connection.send(core.Done(n=frame.n))

    def closed(self, connection: wire.Connection, reason: str) -> None: ...


async def call(port: int, request: bytes) -> tuple[int, Any]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(request)
        return await read_response(reader)
    finally:
        writer.close()


async def read_response(reader: asyncio.StreamReader) -> tuple[int, Any]:
    head = await reader.readuntil(b"\r\n\r\n")
    length = int(head.lower().split(b"content-length: ", 1)[1].split(b"\r\n", 1)[0])
    return int(head[9:12]), json.loads(await reader.readexactly(length))


def post(path: str, authorization: str, body: Any) -> bytes:
    content = json.dumps(body).encode()
    head = (
        f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: {authorization}\r\nUser-Agent: bench\r\n"
        f"Accept: */*\r\nContent-Type: application/json\r\nContent-Length: {len(content)}\r\n\r\n"
    )
    return head.encode() + content


async def client(port: int, authorization: str, count: int, ids: list[str], latencies: list[float]) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    message = {"to": "15550110001", "type": "text", "recipient_type": "individual", "text": {"body": "x" * 100}}
    request = post("/v1/messages", authorization, message)
    for _ in range(count):
        started = time.perf_counter()
        writer.write(request)
        status, body = await read_response(reader)
        latencies.append(time.perf_counter() - started)
        if status != 201:
            raise SystemExit(f"a response was {status}: {body}")
        ids.append(body["messages"][0]["id"])
    writer.close()


async def measure(options: argparse.Namespace) -> None:
    coreapp = Coreapp()
    link = await wire.listen("127.0.0.1", 0, core.Request, lambda: coreapp)
    with tempfile.TemporaryDirectory() as directory:
        read, write = os.pipe()
        child = subprocess.Popen(  # noqa: ASYNC220
            [sys.executable, "-m", "cli.main", "webapp", f"--ready-fd={write}"],
            pass_fds=(write,),
            cwd=Path(__file__).parents[1],
            env=os.environ
            | {
                "TIDINGS_DATA_DIR": directory,
                "TIDINGS_EMBEDDED": "1",
                "TIDINGS_API_ADDRESS": "127.0.0.1:0",
                "TIDINGS_LINK_KEY": LINK_KEY,
                "TIDINGS_MESSAGES_RATE": "0",
                "TIDINGS_LOG_LEVEL": "warning",
                "TIDINGS_PROFILE": str(options.profile or ""),
                "WACORE_HOSTNAME": f"127.0.0.1:{link.sockets[0].getsockname()[1]}",
            },
        )
        os.close(write)
        try:
            with os.fdopen(read) as ready:
                line = await asyncio.to_thread(ready.readline)
            await load(json.loads(line)["port"], psutil.Process(child.pid), options)
        finally:
            child.terminate()
            await asyncio.to_thread(child.wait, 20)


async def load(port: int, webapp: psutil.Process, options: argparse.Namespace) -> None:
    basic = "Basic " + base64.b64encode(b"admin:secret").decode()
    status, body = await call(port, post("/v1/users/login", basic, {"new_password": PASSWORD}))
    assert status == 200, body
    bearer = "Bearer " + body["users"][0]["token"]
    ids: list[str] = []
    latencies: list[float] = []
    each = options.messages // options.clients
    await asyncio.gather(*(client(port, bearer, 20, [], []) for _ in range(options.clients)))
    before, started = webapp.cpu_times(), time.perf_counter()
    await asyncio.gather(*(client(port, bearer, each, ids, latencies) for _ in range(options.clients)))
    took, after = time.perf_counter() - started, webapp.cpu_times()
    if len(set(ids)) != each * options.clients:
        raise SystemExit("an id came twice")
    user, system = after.user - before.user, after.system - before.system
    latencies.sort()
    p50, p95, p99 = (latencies[int(len(latencies) * q)] * 1000 for q in (0.5, 0.95, 0.99))
    count = len(ids)
    print(
        f"{count} messages, {options.clients} clients: {count / took:.0f}/s, "
        f"webapp {(user + system) / count * 1e6:.0f} µs CPU a message "
        f"(user {user / count * 1e6:.0f}, system {system / count * 1e6:.0f}), "
        f"latency p50 {p50:.1f} p95 {p95:.1f} p99 {p99:.1f} ms, memory {webapp.memory_info().rss >> 20} MiB"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clients", type=int, default=64)
    parser.add_argument("--messages", type=int, default=20_000)
    parser.add_argument("--profile", type=Path, help="write a profile of the Webapp there; costs time itself")
    uvloop.run(measure(parser.parse_args()))


if __name__ == "__main__":
    main()
