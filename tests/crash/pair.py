"""Two installations under load and the two wires between them: A sends through the Cloud API of B."""

from __future__ import annotations

import asyncio
import collections
import contextlib
import dataclasses
import random
import time
from collections.abc import AsyncIterator, Mapping
from typing import cast

from harness import ledger
from harness.client import Business
from harness.cloud_client import VERSION
from harness.cloud_pair import CloudPair
from harness.cloud_sender import PROCESSES
from harness.installation import ORDER
from harness.processes import Process
from harness.proxy import Cut, Proxy
from harness.sink_process import SinkProcess
from tests.crash.disruptions import Kill, KillMariaDB, PausePastTheLease, moments, until
from tests.crash.scene import ECHOING, Disruption, Phase, Scene, are_queues_empty
from tidings.aio import crashpoints

# Names of the wires, by what passes them.
POSTS, WEBHOOKS = "posts", "webhooks"
SILENCE = 120.0  # seconds for which a wire may carry nothing
# Maximum seconds for which a wire is cut altogether.
BLACKOUT = 1.0
# Start of the reason of a message whose outcome is unknown.
MAY_HAVE_BEEN_SENT = "may have been sent"


@contextlib.asynccontextmanager
async def wires(pair: CloudPair) -> AsyncIterator[dict[str, Proxy]]:
    """Provide the proxies between A and B, and stop them at the end."""
    found = {
        POSTS: Proxy("127.0.0.1", pair.b.api_port),
        WEBHOOKS: Proxy("127.0.0.1", pair.a.api_port),
    }
    try:
        for wire in found.values():
            await wire.start()
        yield found
    finally:
        for wire in found.values():
            await wire.stop()


async def start(pair: CloudPair, through: Mapping[str, Proxy]) -> Business:
    """Start both installations, connected through these wires. Returns the business at A."""
    return await pair.start(f"{through[POSTS].url}/{VERSION}", through[WEBHOOKS].url)


class PairScene(Scene):
    """Scene whose business is at A, and whose recipients are at B. Processes are named `A: webapp` and so on."""

    def __init__(
        self,
        pair: CloudPair,
        through: Mapping[str, Proxy],
        sink: SinkProcess,
        business: Business,
        rng: random.Random,
    ) -> None:
        super().__init__(pair.a, sink, business, rng)
        self.wires = through
        self._pair = pair

    @property
    def processes(self) -> Mapping[str, Process]:
        a, b = self._pair.a, self._pair.b
        return {f"A: {name}": a.processes[name] for name in PROCESSES} | {
            f"B: {name}": process for name, process in b.processes.items()
        }

    def list_shown(self) -> list[ledger.Shown]:
        return self._pair.list_shown()

    def queues_are_empty(self) -> bool:
        return are_queues_empty(self._pair.a) and are_queues_empty(self._pair.b)

    def replies(self) -> dict[str, int]:
        """Return the number of replies of recipients that A's webhook should have received, that it did not receive,
        and that it received under more ids than recipients sent: one for each message shown.
        """
        expected = collections.Counter(
            (line.number, line.digest) for line in self.shown if line.number.startswith(ECHOING)
        )
        ids = {
            (record.sender, ledger.digest(record.text), record.message_id)
            for record in self.records
            if record.status == "inbound"
        }
        came = collections.Counter((number, digest) for number, digest, _ in ids)
        return {
            "expected": expected.total(),
            "lost": (expected - came).total(),
            "doubled": (came - expected).total(),
        }


@dataclasses.dataclass(frozen=True, slots=True)
class CutWire:
    """Cut exchanges on a wire at a moment of the exchange, each at a random time in an equal part of the phase."""

    wire: str
    cut: Cut
    cuts: int

    async def prepare(self, scene: Scene) -> None:
        pass

    async def disrupt(self, scene: Scene, phase: Phase, duration: float) -> None:
        wire = cast(PairScene, scene).wires[self.wire]
        for moment in moments(scene, duration, self.cuts):
            await until(moment)
            done = wire.cut_next(self.cut)
            # A number that backs off posts nothing for up to 64 s.
            await asyncio.wait([done], timeout=SILENCE)
            if not done.done():
                done.cancel()
                phase.problem = f"nothing passed the wire of {self.wire} for {SILENCE:.0f} s"
                return
            phase.trouble()


@dataclasses.dataclass(frozen=True, slots=True)
class BlackOut:
    """Close all connections of a wire, and pass nothing on for up to a second, any number of times."""

    wire: str
    cuts: int

    async def prepare(self, scene: Scene) -> None:
        pass

    async def disrupt(self, scene: Scene, phase: Phase, duration: float) -> None:
        wire = cast(PairScene, scene).wires[self.wire]
        for moment in moments(scene, duration, self.cuts):
            await until(moment)
            phase.trouble()
            wire.cut()
            await until(time.monotonic() + scene.rng.uniform(0, BLACKOUT))
            wire.open()


def phases(kills: int, cuts: int) -> list[tuple[str, Disruption]]:
    """Return names of phases, and what happens in each.

    kills: of each process
    cuts: of each wire at each moment of an exchange
    """
    names = [*(f"A: {name}" for name in PROCESSES), *(f"B: {name}" for name in ORDER)]
    wires_cut: list[tuple[str, Disruption]] = []
    for wire in (POSTS, WEBHOOKS):
        wires_cut += [(f"{wire} cut {cut.value} ({cuts})", CutWire(wire, cut, cuts)) for cut in Cut]
        wires_cut.append((f"all {wire} cut for up to {BLACKOUT:g} s ({cuts})", BlackOut(wire, cuts)))
    return [
        *((f"{name} killed ({kills})", Kill(name, kills)) for name in names),
        (f"mariadbd killed ({kills})", KillMariaDB(kills)),
        ("A: coreapp paused past its lease", PausePastTheLease()),
        *wires_cut,
    ]


# Crash points of A's Coreapp, and the highest pass at which it dies: with a message committed and not answered, with a
# response to a post and no row of it, and with the row of an event that is not acknowledged.
POINTS: tuple[tuple[str, int], ...] = (
    (crashpoints.AFTER_COMMIT_BEFORE_REPLY, 50),
    (crashpoints.AFTER_SEND_BEFORE_MARK, 50),
    (crashpoints.AFTER_ROW_BEFORE_NETWORK_ACK, 50),
)
