"""Three of ten devices lose their connection every few seconds for five minutes; the others notice nothing."""

from __future__ import annotations

import asyncio
import shutil
import time
from pathlib import Path

import pytest

from harness import measure, polling
from harness.client import Sent
from harness.processes import Process
from harness.proxy import Proxy
from tests.load.scene import LoadScene, figures_of, p99, under_load

pytestmark = pytest.mark.whole_system

STEADY, FLAPPING = 700, 300
RATE = 60.0
MINUTES = 5.0
# Seconds between two losses of all connections of the flapping devices.
PERIOD = 5.0
BASELINE_SECONDS = 60.0


def flapping_number(index: int) -> str:
    return f"1777011{index:04d}"


async def test_devices_that_reconnect_for_5_minutes_lose_nothing_and_delay_no_other(
    tmp_path: Path, minutes: float | None
) -> None:
    seconds = 60.0 * (minutes or MINUTES)
    async with under_load(tmp_path, robots=STEADY) as scene:
        common = scene.installation.common
        host, _, port = common["TIDINGS_NETWORK_TCP_ADDRESS"].rpartition(":")
        proxy = Proxy(host, int(port))
        await proxy.start()
        flapping = Process("flapping", "robots", _environment(scene, tmp_path, proxy), tmp_path)
        try:
            await flapping.start()
            await _measure(scene, proxy, seconds)
        finally:
            await flapping.stop()
            await proxy.stop()


def _environment(scene: LoadScene, directory: Path, proxy: Proxy) -> dict[str, str]:
    # Both processes append to one log of shown messages. They have separate data directories, with common secrets.
    data_dir = directory / "flapping"
    shutil.copytree(scene.installation.data_dir / "secrets", data_dir / "secrets")
    return {
        **scene.installation.common,
        "TIDINGS_DATA_DIR": str(data_dir),
        "TIDINGS_ROBOTS_LOG": str(scene.installation.robots_log),
        "TIDINGS_ROBOTS_PREFIXES": "17770",
        "TIDINGS_ROBOTS_PER_KIND": str(FLAPPING),
        "TIDINGS_ROBOTS_CONNECTIONS": "30",
        "TIDINGS_NETWORK_TCP_ADDRESS": f"127.0.0.1:{proxy.address[1]}",
    }


async def _measure(scene: LoadScene, proxy: Proxy, seconds: float) -> None:
    figures = figures_of("test_flapping_devices.py")
    numbers = [flapping_number(index) for index in range(FLAPPING)]
    await scene.business.check_contacts(numbers)
    everybody = [*scene.numbers, *numbers]
    await scene.send(numbers, 100.0)
    await scene.settle()

    def choose() -> str:
        return scene.rng.choice(everybody)

    before = await scene.send_for(BASELINE_SECONDS, RATE, choose)
    await scene.settle()
    losses, until = 0, time.monotonic() + seconds
    async with scene.sending(RATE, choose) as during:
        while time.monotonic() < until:
            await asyncio.sleep(PERIOD)
            proxy.cut()
            await polling.until(lambda: _online(scene) < STEADY + FLAPPING / 2)
            proxy.open()
            losses += 1
        await polling.until(lambda: _online(scene) > STEADY + FLAPPING)
    await scene.settle()
    scene.require_balance()
    attack, what = "30 % of the devices reconnect", "request to last callback of the others, p99"
    figures.record(attack, "losses of their connections", losses, seconds / PERIOD * 0.5, at_least=True)
    baseline = p99(scene.whole_delays(_steady(before)))
    figures.record("before", what, baseline, None, "ms")
    figures.record(attack, what, p99(scene.whole_delays(_steady(during))), baseline * 1.2, "ms")


def _steady(sent: list[Sent]) -> list[Sent]:
    return [one for one in sent if not one.request.number.startswith("1777")]


def _online(scene: LoadScene) -> int:
    """Return the number of devices that are logged in, the business included."""
    return int(measure.metric(scene.installation.metrics()["network"], "tidings_network_devices_online"))
