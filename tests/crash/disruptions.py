"""Disruptions while messages flow: kills, a pause past the lease, death at a crash point."""

from __future__ import annotations

import asyncio
import dataclasses
import time

from harness import polling
from tests.crash.scene import LEASE_SECONDS, Disruption, Phase, Scene
from tidings.aio import crashpoints

KILLS = 3
# Seconds within which a process must reach its crash point, or a standby take over.
TIMEOUT = 60.0
_WRITTEN = "SELECT COUNT(*) FROM envelopes WHERE recipient = '15550000000' AND kind = 'message'"


@dataclasses.dataclass(frozen=True, slots=True)
class Kill:
    """`kill -9` a process at a random moment in each equal part of the phase, and restart it at once."""

    process: str
    kills: int = KILLS

    async def prepare(self, scene: Scene) -> None:
        pass

    async def disrupt(self, scene: Scene, phase: Phase, duration: float) -> None:
        process = scene.processes[self.process]
        for moment in moments(scene, duration, self.kills):
            await until(moment)
            phase.trouble()
            await process.kill9()
            await process.start()


@dataclasses.dataclass(frozen=True, slots=True)
class KillMariaDB:
    """`kill -9` the database server at a random moment in each third of the phase, and restart it at once."""

    kills: int = KILLS

    async def prepare(self, scene: Scene) -> None:
        pass

    async def disrupt(self, scene: Scene, phase: Phase, duration: float) -> None:
        for moment in moments(scene, duration, self.kills):
            await until(moment)
            phase.trouble()
            mariadb = scene.installation.mariadb
            assert mariadb is not None
            await asyncio.to_thread(mariadb.kill9)
            await asyncio.to_thread(mariadb.start)


@dataclasses.dataclass(frozen=True, slots=True)
class RespondWith:
    """Let the webhook respond with an HTTP status for up to 2 seconds in each third of the phase."""

    status: int

    async def prepare(self, scene: Scene) -> None:
        pass

    async def disrupt(self, scene: Scene, phase: Phase, duration: float) -> None:
        for moment in moments(scene, duration):
            await until(moment)
            phase.trouble()
            await scene.respond_with(self.status)
            await asyncio.sleep(scene.rng.uniform(0.2, 2.0))
            await scene.respond_with(200)


class PausePastTheLease:
    """Pause the Coreapp until a standby has taken its shard, and let it resume in the belief that it still owns it.

    Then the standby is killed, and the Coreapp takes the shard back when the lease has expired.
    """

    async def prepare(self, scene: Scene) -> None:
        await scene.installation.standby.start()

    async def disrupt(self, scene: Scene, phase: Phase, duration: float) -> None:
        coreapp, standby = scene.installation.processes["coreapp"], scene.installation.standby
        await until(time.monotonic() + scene.rng.uniform(0, duration / 4))
        phase.trouble()
        coreapp.pause()
        try:
            await _until_owned_by(scene, "standby")
            await until(time.monotonic() + scene.rng.uniform(0, LEASE_SECONDS))
        finally:
            coreapp.resume()
        await until(time.monotonic() + scene.rng.uniform(0, LEASE_SECONDS))
        phase.trouble()
        await standby.kill9()
        await _until_owned_by(scene, "coreapp")


class LoseSessions:
    """Kill the Coreapp, delete its sessions as after a restored backup, and restart it.

    It then requests what recipients wrote on those sessions. It is killed twice more while it does: once before any
    recipient has received its request, and once at a random moment while they respond.
    """

    async def prepare(self, scene: Scene) -> None:
        pass

    async def disrupt(self, scene: Scene, phase: Phase, duration: float) -> None:
        coreapp, robots = scene.installation.processes["coreapp"], scene.installation.processes["robots"]
        await until(time.monotonic() + scene.rng.uniform(duration / 8, duration / 4))
        # Envelopes for the robots accumulate, and are replied to while the Coreapp is down.
        robots.pause()
        try:
            await until(time.monotonic() + 0.5)
            phase.trouble()
            await coreapp.kill9()
        finally:
            robots.resume()
        try:
            await _until_found(scene, "network", _WRITTEN)
        except TimeoutError:
            phase.problem = "nobody wrote on the sessions that were lost"
        await asyncio.to_thread(scene.installation.change, "business", ["DELETE FROM sessions"])
        robots.pause()
        try:
            await coreapp.start()
            await _until_found(scene, "business", "SELECT COUNT(*) FROM undecrypted_messages")
        except TimeoutError:
            phase.problem = "nothing was asked for again"
        finally:
            phase.trouble()
            await coreapp.kill9()
            robots.resume()
        await coreapp.start()
        await until(time.monotonic() + scene.rng.uniform(0, 1))
        phase.trouble()
        await coreapp.kill9()
        await coreapp.start()


@dataclasses.dataclass(frozen=True, slots=True)
class CrashAt:
    """Let a process die when it reaches a crash point for the `count`-th time, and restart it."""

    point: str
    process: str
    count: int

    async def prepare(self, scene: Scene) -> None:
        process = scene.processes[self.process]
        await process.stop()
        await process.start({"TIDINGS_CRASH_AT": f"{self.point}:{self.count}"})

    async def disrupt(self, scene: Scene, phase: Phase, duration: float) -> None:
        process = scene.processes[self.process]
        ended = asyncio.create_task(process.wait())
        started = time.monotonic()
        while not ended.done():
            if self.point == crashpoints.AFTER_STORE_BEFORE_ACCEPTED:
                await _hold_up_the_robots(scene, ended)
            await asyncio.wait([ended], timeout=0.5)
            if time.monotonic() - started > duration + TIMEOUT:
                phase.problem = f"{self.process} never reached {self.point}:{self.count}"
                await process.stop()
        phase.trouble()
        await process.start()


# Successive numbers of shards. At the end there is one again.
SHARDS = (4, 2, 1)


class ChangeShards:
    """Change the number of shards in each third of the phase. The Coreapp is killed during the second change."""

    async def prepare(self, scene: Scene) -> None:
        pass

    async def disrupt(self, scene: Scene, phase: Phase, duration: float) -> None:
        coreapp = scene.installation.processes["coreapp"]
        for moment, count in zip(moments(scene, duration), SHARDS, strict=True):
            await until(moment)
            phase.trouble()
            requested = asyncio.create_task(scene.request_shards(count))
            if count == 2:
                await until(time.monotonic() + scene.rng.uniform(0.1, 1.5))
                phase.trouble()
                await coreapp.kill9()
                await coreapp.start()
            await requested
            await _until_shards(scene, count)


@dataclasses.dataclass(frozen=True, slots=True)
class CrashInChange:
    """Let the Coreapp die at a crash point during a change of the number of shards, and restart it."""

    point: str
    count: int

    async def prepare(self, scene: Scene) -> None:
        coreapp = scene.installation.processes["coreapp"]
        await coreapp.stop()
        await coreapp.start({"TIDINGS_CRASH_AT": f"{self.point}:{self.count}"})

    async def disrupt(self, scene: Scene, phase: Phase, duration: float) -> None:
        coreapp = scene.installation.processes["coreapp"]
        await until(time.monotonic() + scene.rng.uniform(0, duration / 2))
        ended = asyncio.create_task(coreapp.wait())
        requested = asyncio.create_task(scene.request_shards(4))
        await asyncio.wait([ended], timeout=TIMEOUT)
        if not ended.done():
            phase.problem = f"coreapp never reached {self.point}:{self.count}"
            await coreapp.stop()
        phase.trouble()
        await coreapp.start()
        await requested
        await _until_shards(scene, 4)
        await scene.request_shards(1)
        await _until_shards(scene, 1)


async def _until_shards(scene: Scene, count: int) -> None:
    """Wait until `count` shards exist, all with owners, and no change is pending."""
    await polling.until(lambda: scene.shards() == (count, count, 0), seconds=TIMEOUT)


async def _hold_up_the_robots(scene: Scene, ended: asyncio.Task[int]) -> None:
    """Pause the robots: the network stores only what a recipient does not acknowledge at once."""
    robots = scene.installation.processes["robots"]
    robots.pause()
    try:
        await asyncio.wait([ended], timeout=1.5)
    finally:
        robots.resume()


async def _until_owned_by(scene: Scene, node: str) -> None:
    await polling.until(lambda: scene.owner() == node, seconds=TIMEOUT)


async def _until_found(scene: Scene, family: str, count: str) -> None:
    await polling.until(lambda: bool(scene.installation.read_value(family, count)), seconds=TIMEOUT)


def moments(scene: Scene, duration: float, count: int = KILLS) -> list[float]:
    """Return `count` moments in monotonic seconds, one at random in each equal part of the phase."""
    now = time.monotonic()
    return [now + (part + scene.rng.random()) * duration / count for part in range(count)]


async def until(moment: float) -> None:
    await asyncio.sleep(max(0.0, moment - time.monotonic()))


# Names of the phases in which processes are killed, and what happens in each.
KILL_PHASES: tuple[tuple[str, Disruption], ...] = (
    ("coreapp killed 3 times", Kill("coreapp")),
    ("webapp killed 3 times", Kill("webapp")),
    ("network killed 3 times", Kill("network")),
    ("mariadbd killed 3 times", KillMariaDB()),
    ("robots killed 3 times", Kill("robots")),
    ("coreapp paused past its lease", PausePastTheLease()),
    ("number of shards changed 3 times, coreapp killed in one", ChangeShards()),
    ("coreapp's sessions lost, and it killed while it mends them", LoseSessions()),
)
# Crash point, a process that passes it, and the highest pass at which it dies. Points that are passed once per batch
# are passed less often than those that are passed once per message.
POINTS: tuple[tuple[str, str, int], ...] = (
    (crashpoints.AFTER_COMMIT_BEFORE_REPLY, "coreapp", 200),
    (crashpoints.AFTER_SEAL_BEFORE_COMMIT, "coreapp", 20),
    (crashpoints.AFTER_SEND_BEFORE_MARK, "coreapp", 6),
    (crashpoints.AFTER_ROW_BEFORE_NETWORK_ACK, "coreapp", 6),
    (crashpoints.AFTER_200_BEFORE_MARK, "coreapp", 500),
    (crashpoints.AFTER_DEVICE_ACK_BEFORE_ROW, "network", 6),
    (crashpoints.AFTER_STORE_BEFORE_ACCEPTED, "network", 2),
    (crashpoints.AFTER_ROW_BEFORE_NETWORK_ACK, "robots", 6),
)
# Crash points during a change of the number of shards, and the highest pass at which the process dies.
CHANGE_POINTS: tuple[tuple[str, int], ...] = (
    (crashpoints.AFTER_SHARDS_TAKEN, 1),
    (crashpoints.AFTER_MOVED_PAGE, 1),
    (crashpoints.AFTER_MOVED_PAGE, 3),
    (crashpoints.AFTER_NEW_LAYOUT, 1),
)
