"""CPU of the network process per envelope from a sender over TCP to a recipient over TCP, both online.

    python benchmarks/network_routing.py [--envelopes 50000] [--recipients 1] [--rate 3000] [--offline] [--profile]

The network runs in a separate process on a fresh SQLite database; the clients run here. Checks that every envelope
arrived once, in order, and was accepted once.
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import cProfile
import json
import pstats
import subprocess
import sys
import tempfile
import time
import urllib.request
from typing import Any

import psutil
import uvloop

from network import services
from network import settings as network_settings
from tidings.e2ee.prekeys import PreKey, SignedPreKey
from tidings.e2ee.xeddsa import IdentityKeyPair
from tidings.wire import connection as wire
from tidings.wire import device

KEY = "benchmark"
SENDER = "15550000000"
# Sends without a response, as many as a Coreapp has.
WINDOW = 1000
BODY = bytes(200)


def serve(directory: str, profile: bool) -> None:
    """Run the measured process: print its addresses, end with its standard input."""
    settings = network_settings.Settings.read(
        {
            "TIDINGS_DATA_DIR": directory,
            "TIDINGS_EMBEDDED": "1",
            "TIDINGS_REGISTRATION_KEY": KEY,
            "TIDINGS_NETWORK_HTTP_ADDRESS": "127.0.0.1:0",
            "TIDINGS_NETWORK_TCP_ADDRESS": "127.0.0.1:0",
            # One sender sends everything, by default to one recipient.
            "TIDINGS_NETWORK_PAIR_RATE": "0",
            "TIDINGS_NETWORK_MAILBOX_SHARE_ENVELOPES": "1000000",
            "TIDINGS_NETWORK_MAILBOX_SHARE_MB": "1024",
        }
    )

    async def run() -> None:
        stop = asyncio.Event()
        asyncio.get_running_loop().add_reader(sys.stdin.fileno(), stop.set)
        await services.run(settings, stop, lambda a: print(json.dumps([a.http, a.tcp]), flush=True))

    if not profile:
        uvloop.run(run())
        return
    profiler = cProfile.Profile()
    profiler.enable()
    uvloop.run(run())
    profiler.disable()
    pstats.Stats(profiler, stream=sys.stderr).sort_stats("tottime").print_stats(30)


class Client:
    """Client that counts deliveries and acceptances."""

    def __init__(self) -> None:
        self.ready = asyncio.Event()
        self.changed = asyncio.Event()
        self.delivered: dict[str, list[str]] = {}
        self.accepted: list[int] = []
        self.acks: list[int] = []
        self.count = self.expected = 0
        self.complete = asyncio.Event()

    def opened(self, connection: wire.Connection) -> None:
        self.connection = connection

    def received(self, connection: wire.Connection, frame: Any) -> None:
        if isinstance(frame, device.Deliver):
            if not self.acks:
                asyncio.get_running_loop().call_soon(self.flush)
            self.acks.append(frame.n)
            self.delivered.setdefault(frame.to, []).append(frame.id)
            self.count += 1
            if self.count == self.expected:
                self.complete.set()
        elif isinstance(frame, device.Accepted):
            self.accepted += frame.n
            self.changed.set()
        elif isinstance(frame, device.Ok):
            self.ready.set()

    def flush(self) -> None:
        self.connection.send(device.Ack(n=self.acks))
        self.acks = []

    def closed(self, connection: wire.Connection, reason: str) -> None:
        pass


def registration(number: str) -> dict[str, Any]:
    def text(data: bytes) -> str:
        return base64.b64encode(data).decode()

    me = IdentityKeyPair.generate()
    signed = SignedPreKey.generate(me, 1)
    return {
        "number": number,
        "registration_id": 1,
        "identity_key": text(me.public),
        "signed_prekey": {"key_id": 1, "public": text(signed.public), "signature": text(signed.signature)},
        "prekeys": [{"key_id": i, "public": text(PreKey.generate(i).public)} for i in range(20)],
    }


def register(address: tuple[str, int], numbers: list[str]) -> dict[str, str]:
    tokens: dict[str, str] = {}
    for start in range(0, len(numbers), 500):
        body = {"registrations": [registration(number) for number in numbers[start : start + 500]]}
        request = urllib.request.Request(
            f"http://{address[0]}:{address[1]}/v1/registrations/bulk",
            json.dumps(body).encode(),
            {"Authorization": f"Bearer {KEY}"},
        )
        with urllib.request.urlopen(request) as response:
            tokens.update((entry["number"], entry["token"]) for entry in json.load(response)["registrations"])
    return tokens


async def login(address: tuple[str, int], numbers: list[str], tokens: dict[str, str], *, expected: int = 0) -> Client:
    client = Client()
    client.expected = expected
    await wire.connect(*address, device.FromNetwork, client)
    for number in numbers:
        client.ready.clear()
        client.connection.send(device.Login(n=1, number=number, token=tokens[number]))
        await client.ready.wait()
    return client


async def drive(arguments: argparse.Namespace, http: Any, tcp: Any, process: psutil.Process) -> None:
    recipients = [f"1555100{i:04}" for i in range(arguments.recipients)]
    tokens = register(tuple(http), [SENDER, *recipients])
    sender = await login(tuple(tcp), [SENDER], tokens)
    fleet = Client() if arguments.offline else await login(tuple(tcp), recipients, tokens)

    async def send(first: int, count: int, rate: int = 0) -> None:
        started = time.perf_counter()
        for n in range(first, first + count):
            ahead = (n - first) / rate - (time.perf_counter() - started) if rate else 0.0
            if ahead > 0:
                # Sleep at least a millisecond, so that the envelopes due in it are sent together.
                await asyncio.sleep(max(ahead, 0.001))
            while n - 1 - len(sender.accepted) >= WINDOW:
                sender.changed.clear()
                await sender.changed.wait()
            to = recipients[n % len(recipients)]
            sender.connection.send(device.Send(n=n, sender=SENDER, to=to, id=f"m{n}", kind=device.MESSAGE, body=BODY))
        while len(sender.accepted) < first + count - 1:
            sender.changed.clear()
            await sender.changed.wait()

    warm_up = 2000
    await send(1, warm_up)
    cpu, started = sum(process.cpu_times()[:2]), time.perf_counter()
    await send(warm_up + 1, arguments.envelopes, arguments.rate)
    seconds, cpu = time.perf_counter() - started, sum(process.cpu_times()[:2]) - cpu

    total = warm_up + arguments.envelopes
    if arguments.offline:
        fleet = await login(tuple(tcp), recipients, tokens, expected=total)
        await fleet.complete.wait()
    assert sorted(sender.accepted) == list(range(1, total + 1)), "accepted once each"
    for index, number in enumerate(recipients):
        expected = [f"m{n}" for n in range(1, total + 1) if n % len(recipients) == index]
        assert fleet.delivered.get(number, []) == expected, "delivered once each, in order"
    print(
        f"{arguments.envelopes} envelopes, {arguments.recipients} recipients"
        f" {'offline' if arguments.offline else 'online'}:"
        f" {cpu / arguments.envelopes * 1e6:.1f} µs CPU of the network for one,"
        f" {arguments.envelopes / seconds:.0f} a second"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--envelopes", type=int, default=50_000)
    parser.add_argument("--recipients", type=int, default=1)
    parser.add_argument("--rate", type=int, default=0, help="envelopes a second; as fast as it goes by default")
    parser.add_argument("--offline", action="store_true", help="the recipients are not connected: everything is stored")
    parser.add_argument("--profile", action="store_true", help="print where the network spends its time")
    parser.add_argument("--serve", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.serve:
        serve(arguments.serve, arguments.profile)
        return
    with tempfile.TemporaryDirectory() as directory:
        command = [sys.executable, __file__, "--serve", directory, *(["--profile"] if arguments.profile else [])]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
            assert process.stdout is not None
            assert process.stdin is not None
            try:
                http, tcp = json.loads(process.stdout.readline())
                uvloop.run(drive(arguments, http, tcp, psutil.Process(process.pid)))
            finally:
                process.stdin.close()
                process.wait()


if __name__ == "__main__":
    main()
