"""Real network in this process, and recipients on it."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

import network.services
import network.settings
from handset.robots.behaviours import Behaviour
from handset.services import run_robots
from handset.settings import RobotsSettings
from tests import migrated
from tests.handset.scripted import BUSINESS
from tidings.installation.settings import DatabaseSettings
from tidings.secrets.process_secrets import HandsetSecrets, NetworkSecrets, SecretKeys

HANDSET_KEY = bytes(range(32))
# A number that only its Coreapp can register.
COMPANY = "15559990000"
SECRETS = HandsetSecrets(registration_key="r" * 32, handset_key=SecretKeys.of(HANDSET_KEY))


@dataclasses.dataclass(slots=True)
class LiveNetwork:
    """Services of a network process, running in this loop. They can be stopped and restarted on the same ports."""

    folder: Path
    http: tuple[str, int] = ("127.0.0.1", 0)
    tcp: tuple[str, int] = ("127.0.0.1", 0)
    _stop: asyncio.Event = dataclasses.field(default_factory=asyncio.Event)
    _task: asyncio.Task[None] | None = None

    @property
    def http_url(self) -> str:
        return f"http://127.0.0.1:{self.http[1]}"

    async def start(self) -> None:
        self._stop = asyncio.Event()
        ready = asyncio.Event()

        def at(addresses: network.services.NodeAddresses) -> None:
            self.http, self.tcp = addresses.http, addresses.tcp
            ready.set()

        settings = network.settings.Settings(
            database=DatabaseSettings(f"sqlite+aiosqlite:///{self.folder / 'network.db'}"),
            secrets=NetworkSecrets(registration_key=SECRETS.registration_key),
            data_dir=self.folder,
            blobs=network.settings.BlobSettings(directory=self.folder / "blobs"),
            rate_limits=network.settings.DeviceRateLimits(one_time=500, businesses=frozenset({COMPANY})),
            http_address=self.http,
            tcp_address=self.tcp,
            embedded=True,
        )
        await migrated.create_sqlite(self.folder / "network.db", "network")
        self._task = asyncio.create_task(network.services.run(settings, self._stop, at))
        waiter = asyncio.create_task(ready.wait())
        await asyncio.wait([self._task, waiter], return_when=asyncio.FIRST_COMPLETED)
        if self._task.done():
            waiter.cancel()
            await self._task

    async def stop(self) -> None:
        self._stop.set()
        if self._task is not None:
            await self._task
            self._task = None


@pytest.fixture
async def live_network(tmp_path: Path) -> AsyncIterator[LiveNetwork]:
    folder = tmp_path / "network"
    folder.mkdir()
    live = LiveNetwork(folder)
    await live.start()
    yield live
    await live.stop()


@pytest.fixture
def robots_settings(tmp_path: Path, live_network: LiveNetwork) -> RobotsSettings:
    """Settings for two robots of each kind."""
    folder = tmp_path / "robots"
    folder.mkdir()
    return RobotsSettings(
        data_dir=folder,
        database=DatabaseSettings(f"sqlite+aiosqlite:///{folder / 'handset.db'}", pool_size=3),
        secrets=SECRETS,
        http_url=live_network.http_url,
        tcp_address=live_network.tcp,
        per_kind=2,
        kinds=tuple(Behaviour),
        log_path=folder / "robots.jsonl",
        block=BUSINESS,
        prekeys=5,
        connections=2,
        embedded=True,
    )


@contextlib.asynccontextmanager
async def robots_running(settings: RobotsSettings) -> AsyncIterator[None]:
    """Run the whole process of robots, from start to stop."""
    stop, ready = asyncio.Event(), asyncio.Event()
    task = asyncio.create_task(run_robots(settings, stop, ready))
    waiter = asyncio.create_task(ready.wait())
    await asyncio.wait([task, waiter], return_when=asyncio.FIRST_COMPLETED, timeout=30)
    try:
        assert ready.is_set(), task
        yield
    finally:
        waiter.cancel()
        stop.set()
        await task
