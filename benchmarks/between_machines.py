"""Compare TLS between machines with plaintext: round trips of frames, CPU per message, and the cost of handshakes.

    python -m benchmarks.between_machines [--rounds 5] [--messages 20000] [--window 64]

Two processes on uvloop exchange requests and responses over loopback as Webapp and Coreapp do, with `window` in flight,
alternating between plaintext and TLS. Then one process connects to the other as often as it can. Prints medians of the
rounds. Exits with 1 when a response is missing.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import psutil
import uvloop

from cli import main
from tidings.net import tls
from tidings.net.tls import Clients, TlsFiles
from tidings.net.tls_server import Handshakes
from tidings.wire import connection as wire
from tidings.wire import core
from tidings.wire.requests import Requests

# Bytes of a message: a text of the API, and its envelope.
SIZES = {"link, a text": 200, "network, an envelope": 1000}
HANDSHAKES = 300  # connections per measurement
NAME = "coreapp"


def files(directory: Path, name: str) -> TlsFiles:
    return TlsFiles(*(str(directory / part) for part in (f"{name}.pem", f"{name}.key", "ca.pem")))


class Server:
    """Accepts each message at once."""

    def opened(self, connection: wire.Connection) -> None: ...

    def received(self, connection: wire.Connection, frame: core.AcceptMessage) -> None:
        connection.send(core.Accepted(frame.n, "gBEGkYiEB1VXAglK1ZEqA1YKPrU", frame.to))

    def closed(self, connection: wire.Connection, reason: str) -> None: ...


class Client:
    def __init__(self) -> None:
        self.requests: Requests[core.Response] = Requests()

    def opened(self, connection: wire.Connection) -> None: ...

    def received(self, connection: wire.Connection, frame: core.Response) -> None:
        self.requests.resolve(frame.n, frame)

    def closed(self, connection: wire.Connection, reason: str) -> None:
        self.requests.lost(reason)


async def serve(directory: Path) -> None:
    context = tls.server("link", files(directory, NAME), clients=Clients.REQUIRED)
    plain = await wire.listen("127.0.0.1", 0, core.Request, Server)
    many = Handshakes("link", of_one=1000, of_all=1000)
    secure = await wire.listen("127.0.0.1", 0, core.Request, Server, tls=context, handshakes=many)
    print(json.dumps([server.sockets[0].getsockname()[1] for server in (plain, secure)]), flush=True)
    await asyncio.Event().wait()


async def exchange(port: int, context: tls.FileContext | None, size: int, options: argparse.Namespace) -> None:
    client = Client()
    connection = await wire.connect("127.0.0.1", port, core.Response, client, tls=context)
    content = bytes(size)

    async def call(count: int) -> None:
        for _ in range(count):
            response = await client.requests.call(
                connection,
                lambda n: core.AcceptMessage(n=n, account="1", to="15550110001", kind="text", content=content),
                timeout=60,
            )
            if not isinstance(response, core.Accepted):
                raise SystemExit(f"a response was {response}")

    await asyncio.gather(*(call(options.messages // options.window) for _ in range(options.window)))
    connection.close("done")


async def handshake(port: int, context: tls.FileContext | None) -> None:
    for _ in range(HANDSHAKES):
        (await wire.connect("127.0.0.1", port, core.Response, Client(), tls=context)).close("done")


def measure(child: psutil.Process, work: object, count: int) -> tuple[float, float, float]:
    """Return the rate per second, and the microseconds of CPU per item, of the server and of the client."""
    own = psutil.Process()

    def cpu(process: psutil.Process) -> float:
        times = process.cpu_times()
        return float(times.user + times.system)

    before, started = (cpu(child), cpu(own)), time.perf_counter()
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(work)  # type: ignore[arg-type]
    took = time.perf_counter() - started
    used = [(now - then) / count * 1e6 for now, then in zip((cpu(child), cpu(own)), before, strict=True)]
    return count / took, used[0], used[1]


def run(options: argparse.Namespace) -> None:
    with tempfile.TemporaryDirectory() as made:
        directory = Path(made)
        main.main(["certificates", made])
        command = [sys.executable, "-m", "benchmarks.between_machines", "--serve", made]
        with subprocess.Popen(command, stdout=subprocess.PIPE) as server:
            try:
                assert server.stdout is not None
                ports = json.loads(server.stdout.readline())
                compare(psutil.Process(server.pid), ports, directory, options)
            finally:
                server.terminate()


def compare(child: psutil.Process, ports: list[int], directory: Path, options: argparse.Namespace) -> None:
    contexts = [None, tls.client("link", files(directory, "webapp"))]
    print("| what | way | a second | CPU of the server, µs each | CPU of the client, µs each |\n|---|---|---|---|---|")
    for what in (*SIZES, "handshakes"):
        found: dict[int, list[tuple[float, float, float]]] = {0: [], 1: []}
        for _ in range(options.rounds):
            for way in (0, 1):
                if what in SIZES:
                    work, count = exchange(ports[way], contexts[way], SIZES[what], options), options.messages
                else:
                    work, count = handshake(ports[way], contexts[way]), HANDSHAKES
                found[way].append(measure(child, work, count))
        for way, name in enumerate(("plaintext", "TLS 1.3, mutual")):
            rate, there, here = (statistics.median(column) for column in zip(*found[way], strict=True))
            print(f"| {what} | {name} | {rate:,.0f} | {there:.1f} | {here:.1f} |", flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--messages", type=int, default=20_000)
    parser.add_argument("--window", type=int, default=64)
    parser.add_argument("--serve", type=Path, help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.serve:
        uvloop.run(serve(chosen.serve))
    else:
        run(chosen)
