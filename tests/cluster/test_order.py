"""Order between nodes in network namespaces during partitions, loss of Redis, packet loss and kills.

Each sender sends to each of its recipients in one stream. Six counts must be 0, and so must `order`: envelopes that
were shown after one that was sent after them in the same stream.
"""

from __future__ import annotations

import asyncio
import collections
import dataclasses
import itertools
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from harness import lateness, namespaces, packages
from harness.lateness import Lateness
from harness.light_devices import LightDevice, LightDevices, register
from harness.mariadb import MariaDB, free_port
from harness.namespaces import HUB, Namespace
from harness.processes import Process
from harness.redis_server import RedisServer
from tidings.installation.settings import DatabaseSettings
from tidings.storage import schema
from tidings.storage.database import Database
from tidings.wire import device

ROOT = Path(__file__).parents[2]
KEY = "the registration key of these tests"
NODES = 3
SENDERS = [f"1555020{i:04}" for i in range(6)]
READERS = [f"1555030{i:04}" for i in range(12)]
# Streams per sender, and envelopes per second of all streams.
STREAMS, RATE = 4, 120
# Seconds between two changes of node.
MOVE_EACH = 0.2
NODE_PORT = 9097
# Seconds of load before a fault, and after it.
BEFORE, AFTER = 2.0, 8.0
# Seconds until everything has arrived at the end.
SETTLE = 60.0
# Seconds from the acceptance of an envelope until it is shown: what is stored is announced within 5 s. Over 300 kbit/s
# the bytes of the load themselves take longer.
LONGEST_WAIT, LONGEST_WAIT_SLOW = 5.0, 15.0


@dataclasses.dataclass
class Envelope:
    """One envelope of the ledger. Times are monotonic seconds, 0 for not yet."""

    id: str
    sender: str
    to: str
    sent: float
    shown: float = 0.0
    place: int = 0  # position of its first display among all first displays


def body_of(id: str) -> bytes:
    """Return a body with the length of a sealed text."""
    return id.encode().ljust(500, b".")


class Ledger:
    """Envelopes sent, in order, and envelopes shown."""

    def __init__(self, crowd: LightDevices) -> None:
        self.sent: dict[str, Envelope] = {}
        self.unexpected: list[str] = []
        self.corrupt: list[str] = []
        self.misdirected: list[str] = []
        self._shown = 0
        self._crowd = crowd
        crowd.on_delivery = self._show

    def add(self, sender: str, to: str) -> Envelope:
        envelope = Envelope(f"m{len(self.sent)}", sender, to, asyncio.get_running_loop().time())
        self.sent[envelope.id] = envelope
        return envelope

    def _show(self, recipient: LightDevice, frame: device.Deliver) -> None:
        envelope = self.sent.get(frame.id)
        if envelope is None:
            self.unexpected.append(frame.id)
            return
        if frame.body != body_of(envelope.id) or frame.sender != envelope.sender:
            self.corrupt.append(frame.id)
        if recipient.number != envelope.to:
            self.misdirected.append(frame.id)
        if not envelope.shown:
            self._shown += 1
            envelope.shown, envelope.place = asyncio.get_running_loop().time(), self._shown

    def accepted(self, envelope: Envelope) -> float:
        """Return the time of acceptance, 0.0 for none."""
        return self._crowd.devices[envelope.sender].accepted.get(envelope.id, 0.0)

    def late(self) -> list[Envelope]:
        """Return the envelopes that were shown after one that was sent after them in the same stream."""
        streams: dict[tuple[str, str], list[Envelope]] = collections.defaultdict(list)
        for envelope in self.sent.values():
            streams[envelope.sender, envelope.to].append(envelope)
        return [envelope for stream in streams.values() for envelope in self._late_of(stream)]

    def _late_of(self, stream: list[Envelope]) -> Iterator[Envelope]:
        for index, envelope in enumerate(stream):
            if any(later.shown and later.place < envelope.place for later in stream[index + 1 :]):
                yield envelope

    def counts(self) -> dict[str, int]:
        """Return the six counts, and `order`."""
        senders = [self._crowd.devices[number] for number in SENDERS]
        return {
            "unanswered": sum(each.pending for each in senders),
            "refused": sum(len(each.refused) for each in senders),
            "lost": sum(not envelope.shown for envelope in self.sent.values() if self.accepted(envelope)),
            "unexpected": len(self.unexpected),
            "corrupt": len(self.corrupt),
            "misdirected": len(self.misdirected),
            "order": len(self.late()),
        }

    def longest_wait(self, start: float, end: float) -> float:
        """Return the most seconds from the acceptance of an envelope sent in this period until it was shown."""
        waits = [
            envelope.shown - max(self.accepted(envelope), envelope.sent)
            for envelope in self.sent.values()
            if start <= envelope.sent < end
        ]
        return max(waits, default=0.0)


@dataclasses.dataclass
class Scene:
    """Nodes in their namespaces, and the other parts that they talk to."""

    spaces: list[Namespace]
    processes: list[Process]
    redis: RedisServer

    def peers(self, of: int) -> str:
        others = ", ".join(space.address for index, space in enumerate(self.spaces) if index != of)
        return f"ip {{end}} {{{{ {others} }}}}"

    def to_redis(self) -> str:
        return f"ip {{end}} {HUB} tcp {{port}} {self.redis.port}"


@dataclasses.dataclass(frozen=True)
class Fault:
    """A fault that lasts some seconds, and returns after as many seconds without it."""

    begin: Callable[[Scene], None]
    seconds: float = 9.0
    times: int = 1
    longest_wait: float = LONGEST_WAIT  # seconds
    moving: bool = False  # recipients change nodes during the fault


def one_way(scene: Scene) -> None:
    """Drop the packets from node 0 to node 1."""
    scene.spaces[1].cut(f"ip {{end}} {scene.spaces[0].address}", both_ways=False)


def both_ways(scene: Scene) -> None:
    scene.spaces[1].cut(f"ip {{end}} {scene.spaces[0].address}")


def from_redis(scene: Scene) -> None:
    scene.spaces[1].cut(scene.to_redis())


def from_peers(scene: Scene) -> None:
    scene.spaces[1].cut(scene.peers(1))


def redis_lost(scene: Scene) -> None:
    scene.redis.kill9()


def slow(scene: Scene) -> None:
    scene.spaces[1].slow_down("300kbit")


def lossy(scene: Scene) -> None:
    scene.spaces[1].drop_packets(5)


def cut_off_and_killed(scene: Scene) -> None:
    """Cut node 1 off from the other nodes and Redis. It still reaches its devices and the database until it is
    killed."""
    from_peers(scene)
    from_redis(scene)


FAULTS: dict[str, Fault] = {
    "one way": Fault(one_way),
    "both ways": Fault(both_ways),
    "both ways for 3 s, five times": Fault(both_ways, 3.0, 5),
    "both ways, recipients change nodes": Fault(both_ways, moving=True),
    "from Redis and not from peers": Fault(from_redis),
    "from peers and not from Redis": Fault(from_peers),
    "Redis killed": Fault(redis_lost),
    "Redis killed for 3 s, three times": Fault(redis_lost, 3.0, 3),
    "300 kbit/s": Fault(slow, longest_wait=LONGEST_WAIT_SLOW),
    "5 % loss": Fault(lossy),
    "cut off and killed": Fault(cut_off_and_killed),
}


async def move(crowd: LightDevices) -> None:
    """Let recipients abandon their connections, one after the other; each connects to the next node. Never ends."""
    for number in itertools.cycle(READERS):
        crowd.devices[number].abandon()
        await asyncio.sleep(MOVE_EACH)


class Load:
    """Load from all senders to their recipients in round robin, at a rate, until it ends."""

    def __init__(self, crowd: LightDevices, ledger: Ledger) -> None:
        self._stop = asyncio.Event()
        self._crowd, self._ledger = crowd, ledger
        self._task = asyncio.create_task(self._run())

    async def _run(self) -> None:
        loop, count = asyncio.get_running_loop(), 0
        started = loop.time()
        while not self._stop.is_set():
            while count < (loop.time() - started) * RATE:
                sender = count % len(SENDERS)
                to = READERS[(2 * sender + count // len(SENDERS) % STREAMS) % len(READERS)]
                envelope = self._ledger.add(SENDERS[sender], to)
                self._crowd.devices[SENDERS[sender]].send(to, envelope.id, body=body_of(envelope.id))
                count += 1
            await asyncio.sleep(0.01)

    async def end(self) -> None:
        self._stop.set()
        await self._task


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make namespaces")
@pytest.mark.parametrize("fault", FAULTS)
def test_envelope_order_holds_between_nodes(tmp_path: Path, fault: str) -> None:
    """Run in a separate process, whose network namespace contains nothing else."""
    packages.require(namespaces.PROGRAMS, namespaces.PROGRAMS)
    command = ["unshare", "--net", sys.executable, "-m", "tests.cluster.test_order", str(tmp_path), fault]
    assert subprocess.run(command, cwd=ROOT, timeout=300).returncode == 0


async def _play(scene: Scene, name: str, crowd: LightDevices, ledger: Ledger, late: Lateness) -> None:
    loop = asyncio.get_running_loop()
    load = Load(crowd, ledger)
    await asyncio.sleep(BEFORE)
    begin, fault = loop.time(), FAULTS[name]
    moves = asyncio.create_task(move(crowd)) if fault.moving else None
    for turn in range(fault.times):
        if turn:
            await asyncio.sleep(fault.seconds)
        fault.begin(scene)
        await asyncio.sleep(fault.seconds)
        if fault.begin is cut_off_and_killed:
            await scene.processes[1].kill9()
            await asyncio.sleep(AFTER)
        scene.spaces[1].heal()
        if fault.begin is redis_lost:
            scene.redis.start()
    if moves is not None:
        moves.cancel()
    end = loop.time()
    await asyncio.sleep(AFTER)
    await load.end()
    try:
        await crowd.until(lambda: not sum(ledger.counts()[count] for count in ("unanswered", "lost")), SETTLE)
    except TimeoutError:
        print("did not settle", flush=True)
    counts = ledger.counts()
    repeats = sum(count - 1 for number in READERS for count in crowd.devices[number].received.values())
    wait, after = ledger.longest_wait(begin, end), ledger.longest_wait(end, loop.time())
    print(
        f"{name}: {len(ledger.sent)} envelopes, {counts}, {repeats} repeated;"
        f" longest wait {wait:.1f} s during the fault, {after:.1f} s after it",
        flush=True,
    )
    for envelope in ledger.late()[:5]:
        print(f"  late: {envelope}, accepted {ledger.accepted(envelope):.3f}", flush=True)
    assert not any(counts.values()), counts
    assert max(wait, after) <= fault.longest_wait + late.seconds, (wait, after, late.seconds)


async def _run(directory: Path, name: str) -> None:
    namespaces.make_hub()
    mariadb = MariaDB(flush_log=0, options=("--bind-address=0.0.0.0",))
    redis = RedisServer(options=("--bind", "0.0.0.0", "--protected-mode", "no"))
    spaces = [Namespace(number) for number in range(NODES)]
    scene = Scene(spaces, [], redis)
    try:
        mariadb.start()
        redis.start()
        for space in spaces:
            space.make()
        await _prepare(mariadb)
        ports = free_port(), free_port()
        for number, space in enumerate(spaces):
            environment = {
                "TIDINGS_DATA_DIR": str(directory),
                "TIDINGS_NETWORK_DB_URL": mariadb.url("nodes", user="nodes").replace("127.0.0.1", HUB),
                "TIDINGS_REGISTRATION_KEY": KEY,
                "TIDINGS_REDIS_URL": f"redis://{HUB}:{redis.port}",
                "TIDINGS_NETWORK_NODE": f"network-{number}",
                "TIDINGS_NETWORK_NODE_ADDRESS": f":{NODE_PORT}",
                "TIDINGS_NETWORK_HTTP_ADDRESS": f"0.0.0.0:{ports[0]}",
                "TIDINGS_NETWORK_TCP_ADDRESS": f"0.0.0.0:{ports[1]}",
                "TIDINGS_ALLOW_PLAINTEXT": "all",
            }
            scene.processes.append(Process(f"network-{number}", "network", environment, directory, prefix=space.prefix))
        await asyncio.gather(*[process.start() for process in scene.processes])
        tokens = await register(f"http://{spaces[0].address}:{ports[0]}", KEY, SENDERS + READERS)
        crowd = LightDevices([(space.address, ports[1]) for space in spaces], tokens)
        ledger = Ledger(crowd)
        try:
            await crowd.connect()
            async with lateness.measured() as late:
                await _play(scene, name, crowd, ledger, late)
        finally:
            await crowd.close()
    finally:
        await asyncio.gather(*[process.kill9() for process in scene.processes if process.pid is not None])
        redis.remove()
        mariadb.remove()
        for space in spaces:
            space.remove()


async def _prepare(mariadb: MariaDB) -> None:
    with mariadb.connect() as connection, connection.cursor() as cursor:
        cursor.execute("CREATE DATABASE nodes CHARACTER SET utf8mb4")
        cursor.execute("CREATE USER 'nodes'@'%'")
        cursor.execute("GRANT ALL ON nodes.* TO 'nodes'@'%'")
    database = Database(DatabaseSettings(mariadb.url("nodes")), "network")
    await schema.prepare(database, migrate=True)
    await database.close()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as scratch:
        asyncio.run(_run(Path(sys.argv[1] if len(sys.argv) > 2 else scratch), sys.argv[-1]))
