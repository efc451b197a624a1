"""What goes wrong while messages flow: kills, a pause past the lease, death at a named point."""

from __future__ import annotations

import asyncio
import time

from tests.crash.scene import LEASE_SECONDS, Disruption, Phase, Scene
from tidings.runtime import crashpoints

KILLS = 3
# Seconds in which a process must reach the point at which it is to die, or a standby take over.
PATIENCE = 60.0


def kill(name: str) -> Disruption:
    """`kill -9` a process at three random moments, and start it again at once."""

    async def disrupt(scene: Scene, phase: Phase, duration: float) -> None:
        process = scene.installation.processes[name]
        for moment in _moments(scene, duration):
            await _until(moment)
            phase.trouble()
            await process.kill9()
            await process.start()

    return disrupt


async def kill_mariadb(scene: Scene, phase: Phase, duration: float) -> None:
    """The same for the database server."""
    for moment in _moments(scene, duration):
        await _until(moment)
        phase.trouble()
        await asyncio.to_thread(scene.mariadb.kill9)
        await asyncio.to_thread(scene.mariadb.start)


async def pause_past_the_lease(scene: Scene, phase: Phase, duration: float) -> None:
    """Stop the Coreapp until a standby has taken its shard, and let it wake up believing that it still owns it."""
    coreapp, standby = scene.installation.processes["coreapp"], scene.installation.standby
    await standby.start()
    await _until(time.monotonic() + scene.rng.uniform(0, duration / 4))
    phase.trouble()
    coreapp.pause()
    try:
        await _until_owned_by(scene, "standby")
        # It writes while both run: the one that owns the shard, and the one that owned it.
        await _until(time.monotonic() + scene.rng.uniform(0, LEASE_SECONDS))
    finally:
        coreapp.resume()
    await _until(time.monotonic() + LEASE_SECONDS)
    phase.trouble()
    await standby.kill9()
    await _until_owned_by(scene, "coreapp")


def crash_at(point: str, name: str) -> Disruption:
    """The process dies at a named point, reached for the so-manyth time, and is started again."""

    async def disrupt(scene: Scene, phase: Phase, duration: float) -> None:
        process = scene.installation.processes[name]
        count = scene.rng.randint(1, 4)
        await process.stop()
        await process.start({"TIDINGS_CRASH_AT": f"{point}:{count}"})
        ended = asyncio.create_task(process.wait())
        started = time.monotonic()
        try:
            while not ended.done():
                if point == crashpoints.AFTER_STORE_BEFORE_ACCEPTED:
                    await _hold_up_the_robots(scene, ended)
                await asyncio.wait([ended], timeout=0.5)
                if time.monotonic() - started > duration + PATIENCE:
                    phase.problem = f"{name} never reached {point}:{count}"
                    await process.stop()
            phase.trouble()
        finally:
            await process.start()

    return disrupt


async def _hold_up_the_robots(scene: Scene, ended: asyncio.Task[int]) -> None:
    """Only what its recipient does not acknowledge at once is stored by the network."""
    robots = scene.installation.processes["robots"]
    robots.pause()
    try:
        await asyncio.wait([ended], timeout=1.5)
    finally:
        robots.resume()


async def _until_owned_by(scene: Scene, node: str) -> None:
    async with asyncio.timeout(PATIENCE):
        while await asyncio.to_thread(scene.owner) != node:  # noqa: ASYNC110 (only the database can say)
            await asyncio.sleep(0.05)


def _moments(scene: Scene, duration: float) -> list[float]:
    """A random one in each third of the phase, in monotonic seconds."""
    now = time.monotonic()
    return [now + (part + scene.rng.random()) * duration / KILLS for part in range(KILLS)]


async def _until(moment: float) -> None:
    await asyncio.sleep(max(0.0, moment - time.monotonic()))


POINTS: tuple[tuple[str, str], ...] = (
    (crashpoints.AFTER_COMMIT_BEFORE_REPLY, "coreapp"),
    (crashpoints.AFTER_SEAL_BEFORE_COMMIT, "coreapp"),
    (crashpoints.AFTER_SEND_BEFORE_MARK, "coreapp"),
    (crashpoints.AFTER_ROW_BEFORE_NETWORK_ACK, "coreapp"),
    (crashpoints.AFTER_200_BEFORE_MARK, "coreapp"),
    (crashpoints.AFTER_DEVICE_ACK_BEFORE_ROW, "network"),
    (crashpoints.AFTER_STORE_BEFORE_ACCEPTED, "network"),
    (crashpoints.AFTER_ROW_BEFORE_NETWORK_ACK, "robots"),
)
