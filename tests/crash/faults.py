"""Database faults other than a crash: full, refusing, limited, read-only, hung; each for a while."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import subprocess
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

from harness import polling
from harness.client import Business
from harness.http_connection import NoResponse
from harness.mariadb import MariaDB
from tests.crash.scene import Phase, Scene

# Maximum seconds until health reports that a database cannot be used.
HEALTH_SECONDS = 10.0
# Time-out of one health request, in seconds. A request that takes longer counts as no report.
HEALTH_TIMEOUT = 5.0
PASSWORD = "of the fault test"
# A file system of this size is full within a moment.
DISK_BYTES = 48 * 1024 * 1024
# File system of a MariaDB, whose log and system tables take most of it.
MARIADB_DISK_BYTES = 320 * 1024 * 1024

Fault = Callable[[Scene], AbstractAsyncContextManager[None]]


@dataclasses.dataclass(frozen=True, slots=True)
class During:
    """Fault that lasts for `seconds` in the middle of the phase. Health must report its start and its end."""

    fault: Fault
    # Processes whose health must report it: `webapp` for the business's database, `network` for the network's. None of
    # them for a recipient's.
    told_by: tuple[str, ...]
    seconds: float = 12.0
    stored: bool = False  # True to pause the recipients, so that the network must store their envelopes

    async def prepare(self, scene: Scene) -> None:
        pass

    async def disrupt(self, scene: Scene, phase: Phase, duration: float) -> None:
        robots = scene.installation.processes["robots"]
        await asyncio.sleep(1.0)
        if self.stored:
            robots.pause()
        try:
            async with self.fault(scene):
                told = [asyncio.create_task(_until_reported(scene, name, well=False)) for name in self.told_by]
                await asyncio.sleep(self.seconds)
        finally:
            robots.resume()
        phase.trouble()
        took = await _seconds(told)
        late = [
            f"{name} said nothing of it" if seconds is None else f"{name} said so after {seconds:.1f} s"
            for name, seconds in zip(self.told_by, took, strict=True)
            if seconds is None or seconds > HEALTH_SECONDS
        ]
        again = [asyncio.create_task(_until_reported(scene, name, well=True)) for name in self.told_by]
        if again:
            await asyncio.wait(again, timeout=HEALTH_SECONDS)
        late += [
            f"{name} still says so {HEALTH_SECONDS:.0f} s after the end"
            for name, seconds in zip(self.told_by, await _seconds(again), strict=True)
            if seconds is None
        ]
        phase.problem = "; ".join(late)


async def _seconds(tasks: list[asyncio.Task[float]]) -> list[float | None]:
    """Return the results of the finished tasks, and None for the others, which are cancelled."""
    for task in tasks:
        task.cancel()
    found = await asyncio.gather(*tasks, return_exceptions=True)
    return [seconds if isinstance(seconds, float) else None for seconds in found]


async def _until_reported(scene: Scene, name: str, *, well: bool) -> float:
    """Return the seconds until the health of `webapp` or `network` reports this state.

    well: True to wait for a healthy state, False for a failure.
    """
    is_available = {"webapp": _is_webapp_healthy, "network": _is_network_healthy}[name]
    started = time.monotonic()

    async def is_so() -> bool:
        return await is_available(scene) is well

    await polling.until(is_so, seconds=600.0, pause=0.2)
    return time.monotonic() - started


async def _is_webapp_healthy(scene: Scene) -> bool:
    status, response = await _health(scene.business, "/v1/health")
    return status == 200 and "disconnected" not in str(response) and "connected" in str(response)


async def _is_network_healthy(scene: Scene) -> bool:
    port = int(scene.installation.common["TIDINGS_NETWORK_HTTP_URL"].rpartition(":")[2])
    status, response = await _health(Business(port), "/health")
    return status == 200 and bool(response)


async def _health(business: Business, path: str) -> tuple[int, Any]:
    try:
        async with asyncio.timeout(HEALTH_TIMEOUT):
            return await business.call("GET", path)
    except (NoResponse, TimeoutError):
        return 0, None


# MariaDB.


def create_users(server: MariaDB) -> dict[str, str]:
    """Create a user per family of tables, who owns only that family. Returns the URLs by variable."""
    with server.connect() as connection, connection.cursor() as cursor:
        for family in ("business", "network"):
            cursor.execute(f"CREATE USER {family}@127.0.0.1 IDENTIFIED BY '{PASSWORD}'")
            cursor.execute(f"GRANT ALL ON tidings_{family}.* TO {family}@127.0.0.1")
    password = PASSWORD.replace(" ", "%20")
    return {
        f"TIDINGS_{family.upper()}_DB_URL": server.url(f"tidings_{family}", user=f"{family}:{password}")
        for family in ("business", "network")
    }


def _fault(begin: Callable[[Any], None], end: Callable[[Any], None], scene: Scene) -> AbstractAsyncContextManager[None]:
    """Return a fault that runs root's statements before and after. Both callbacks get a cursor on a new
    connection."""

    def execute(work: Callable[[Any], None]) -> None:
        assert scene.installation.mariadb is not None
        with scene.installation.mariadb.connect() as connection, connection.cursor() as cursor:
            work(cursor)

    @contextlib.asynccontextmanager
    async def fault() -> AsyncIterator[None]:
        await asyncio.to_thread(execute, begin)
        try:
            yield
        finally:
            await asyncio.to_thread(execute, end)

    return fault()


def _end_connections(cursor: Any, user: str) -> None:
    cursor.execute("SELECT id FROM information_schema.processlist WHERE user = %s", (user,))
    for (number,) in cursor.fetchall():
        with contextlib.suppress(Exception):  # the connection may have ended
            cursor.execute(f"KILL CONNECTION {number}")


def password_changed(user: str) -> Fault:
    """Fault: error 1045 for every new connection. Existing connections are closed."""

    def begin(cursor: Any) -> None:
        cursor.execute(f"ALTER USER {user}@127.0.0.1 IDENTIFIED BY 'another'")
        _end_connections(cursor, user)

    def end(cursor: Any) -> None:
        cursor.execute(f"ALTER USER {user}@127.0.0.1 IDENTIFIED BY '{PASSWORD}'")

    return lambda scene: _fault(begin, end, scene)


def questions_limited(user: str) -> Fault:
    """Fault: error 1226, as the user may run one query per hour."""

    def begin(cursor: Any) -> None:
        cursor.execute(f"ALTER USER {user}@127.0.0.1 WITH MAX_QUERIES_PER_HOUR 1")
        _end_connections(cursor, user)

    def end(cursor: Any) -> None:
        cursor.execute(f"ALTER USER {user}@127.0.0.1 WITH MAX_QUERIES_PER_HOUR 0")
        cursor.execute("FLUSH USER_RESOURCES")

    return lambda scene: _fault(begin, end, scene)


def connections_limited(user: str) -> Fault:
    """Fault: errors 1226 and 1203, as the user's connections are taken by another client."""

    @contextlib.asynccontextmanager
    async def fault(scene: Scene) -> AsyncIterator[None]:
        server = scene.installation.mariadb
        assert server is not None

        def begin(cursor: Any) -> None:
            cursor.execute(f"ALTER USER {user}@127.0.0.1 WITH MAX_USER_CONNECTIONS 1")
            _end_connections(cursor, user)

        def end(cursor: Any) -> None:
            cursor.execute(f"ALTER USER {user}@127.0.0.1 WITH MAX_USER_CONNECTIONS 0")

        async with _fault(begin, end, scene):
            taken = await asyncio.to_thread(_take_the_connection, server, user)
            try:
                yield
            finally:
                taken.close()

    return fault


def _take_the_connection(server: MariaDB, user: str) -> Any:
    deadline = time.monotonic() + 10
    while True:
        try:
            return server.connect(user=user, password=PASSWORD)
        except Exception:
            # One of the product's connections was faster.
            with server.connect() as connection, connection.cursor() as cursor:
                _end_connections(cursor, user)
            if time.monotonic() > deadline:
                raise


def read_only(scene: Scene) -> AbstractAsyncContextManager[None]:
    """Fault: error 1290, as during the failover of a replicated database."""
    return _fault(
        lambda cursor: cursor.execute("SET GLOBAL read_only = 1"),
        lambda cursor: cursor.execute("SET GLOBAL read_only = 0"),
        scene,
    )


@contextlib.asynccontextmanager
async def hung(scene: Scene) -> AsyncIterator[None]:
    """Fault: the server is stopped, so connections stay open and get no response."""
    server = scene.installation.mariadb
    assert server is not None
    server.pause()
    try:
        yield
    finally:
        server.resume()


def tables_locked(family: str) -> Fault:
    """Fault: every query to one family of tables hangs, while the server itself responds."""

    @contextlib.asynccontextmanager
    async def fault(scene: Scene) -> AsyncIterator[None]:
        server = scene.installation.mariadb
        assert server is not None

        def lock() -> Any:
            connection = server.connect(f"tidings_{family}")
            with connection.cursor() as cursor:
                cursor.execute("SHOW TABLES")
                names = ", ".join(f"{table} WRITE" for (table,) in cursor.fetchall())
                cursor.execute(f"LOCK TABLES {names}")
            return connection

        connection = await asyncio.to_thread(lock)
        try:
            yield
        finally:
            connection.close()

    return fault


def queries_killed(user: str) -> Fault:
    """Fault: error 1317 or a closed connection for every query that runs at one of many moments."""

    @contextlib.asynccontextmanager
    async def fault(scene: Scene) -> AsyncIterator[None]:
        server = scene.installation.mariadb
        assert server is not None

        def kill(stop: asyncio.Event) -> None:
            with server.connect() as connection, connection.cursor() as cursor:
                turn = 0
                while not stop.is_set():
                    turn += 1
                    what = "QUERY" if turn % 5 else "CONNECTION"
                    cursor.execute("SELECT id FROM information_schema.processlist WHERE user = %s", (user,))
                    for (number,) in cursor.fetchall():
                        with contextlib.suppress(Exception):
                            cursor.execute(f"KILL {what} {number}")
                    time.sleep(0.02)

        stop = asyncio.Event()
        killing = asyncio.create_task(asyncio.to_thread(kill, stop))
        try:
            yield
        finally:
            stop.set()
            await killing

    return fault


# Files.


class Disk:
    """Small file system in memory that can be filled to the last byte and emptied again. Needs root."""

    def __init__(self, directory: Path, size: int = DISK_BYTES) -> None:
        """Create the file system.

        size: bytes.
        """
        self.directory = directory
        self._size = size
        self._ballast = directory / "ballast"

    @contextlib.contextmanager
    def mounted(self) -> Iterator[Disk]:
        self.directory.mkdir()
        options = f"size={self._size},mode=0700"
        subprocess.run(["mount", "-t", "tmpfs", "-o", options, "none", self.directory], check=True)
        try:
            yield self
        finally:
            # A process that is about to end may still hold a file.
            subprocess.run(["umount", "--lazy", self.directory], check=True)

    @contextlib.asynccontextmanager
    async def full(self, scene: Scene) -> AsyncIterator[None]:
        await asyncio.to_thread(self._fill)
        try:
            yield
        finally:
            self._ballast.unlink()

    def _fill(self) -> None:
        with self._ballast.open("wb", buffering=0) as file, contextlib.suppress(OSError):
            while True:
                file.write(bytes(4096))
