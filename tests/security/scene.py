"""Installation under attack, and its other users."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import itertools
import os
from collections.abc import AsyncIterator, Mapping
from pathlib import Path

from harness import measure
from harness.client import Business
from harness.installation import Installation
from harness.mariadb import MariaDB
from tests.security.bystander_process import BystanderProcess

REGISTRATION_KEY = "the registration key of these attacks"
ENVIRONMENT = {
    "TIDINGS_ROBOTS_KINDS": "11,14",
    "TIDINGS_ROBOTS_PER_KIND": "70",
    "TIDINGS_REGISTRATION_KEY": REGISTRATION_KEY,
}
READERS = tuple(f"1555011{index:04d}" for index in range(20))
# Recipients of the bystanders' messages. The other numbers are for tests.
BYSTANDERS_READERS = READERS[:10]

_addresses = itertools.count(1)


@dataclasses.dataclass(frozen=True, slots=True)
class Baseline:
    """Measurements of a process while bystanders use it without an attack."""

    # CPU seconds per second.
    cpu: float
    # Longest wait of each kind of bystander, in seconds.
    longest: Mapping[str, float]


class Target:
    """Installation under attack."""

    def __init__(self, installation: Installation, business: Business, bystanders: BystanderProcess) -> None:
        self.installation = installation
        self.business = business
        self.bystanders = bystanders
        # By process and kinds of bystanders.
        self.baselines: dict[tuple[str, tuple[str, ...]], Baseline] = {}
        common = installation.common
        # Address (host, port) of each listener.
        self.places = {
            place: (host, int(port))
            for place, variable in (
                ("webapp", "TIDINGS_API_ADDRESS"),
                ("network", "TIDINGS_NETWORK_HTTP_ADDRESS"),
                ("connections", "TIDINGS_NETWORK_TCP_ADDRESS"),
                ("link", "TIDINGS_COREAPP_ADDRESS"),
                ("metrics", "TIDINGS_COREAPP_METRICS_ADDRESS"),
            )
            for host, port in [common[variable].rsplit(":", 1)]
        }
        self.network_url = common["TIDINGS_NETWORK_HTTP_URL"]
        self.registration_key = REGISTRATION_KEY
        self._dialled: list[asyncio.StreamWriter] = []

    def unknown_address(self) -> str:
        """Return a loopback address that this session has not used before, and very likely no other session
        either."""
        number = next(_addresses)
        return f"127.{1 + os.getpid() % 250}.{number // 250}.{1 + number % 250}"

    async def dial(self, place: str, address: str | None = None) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Open a raw connection, which is closed after the test. Raises `OSError`.

        address: local address; None for a new one.
        """
        host, port = self.places[place]
        reader, writer = await asyncio.open_connection(host, port, local_addr=(address or self.unknown_address(), 0))
        self._dialled.append(writer)
        return reader, writer

    def hang_up(self) -> None:
        """Close every raw connection."""
        for writer in self._dialled:
            writer.transport.abort()
        self._dialled.clear()

    def pid(self, process: str) -> int:
        """Return the pid of a process. Raises `AssertionError` when the process has ended."""
        pid = self.installation.processes[process].pid
        assert pid is not None, f"{process} has ended: {self.installation.processes[process].log_tail()}"
        return pid

    async def metric(self, process: str, name: str, labels: str = "") -> float:
        """Return the sum of a metric over the label sets that contain `labels`; 0 if there are none.

        process: `webapp`, `coreapp` or `network`.
        """
        texts = await asyncio.to_thread(self.installation.metrics)
        return measure.metric(texts[process], name, labels)


@contextlib.asynccontextmanager
async def running(
    directory: Path, mariadb: MariaDB | None = None, environment: Mapping[str, str] | None = None
) -> AsyncIterator[Target]:
    """Run an installation. Its start takes about six seconds."""
    async with Installation(directory, mariadb, {**ENVIRONMENT, **(environment or {})}) as installation:
        await installation.start()
        business = await installation.business()
        await business.check_contacts(BYSTANDERS_READERS)
        with BystanderProcess(directory) as bystanders:
            webhook = await asyncio.to_thread(
                bystanders.open,
                {
                    "api_port": installation.api_port,
                    "token": business.token,
                    "network_url": installation.common["TIDINGS_NETWORK_HTTP_URL"],
                    "registration_key": REGISTRATION_KEY,
                    "readers": BYSTANDERS_READERS,
                },
            )
            await business.set_webhook(webhook)
            target = Target(installation, business, bystanders)
            try:
                yield target
            finally:
                target.hang_up()
