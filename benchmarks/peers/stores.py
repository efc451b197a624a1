"""Servers that the peers need: private, durable where possible, removed at the end."""

from __future__ import annotations

import atexit
import os
import shutil
import signal
import socket
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from benchmarks.peers import install
from benchmarks.rig.run import RunFailed
from harness import packages, polling, spawn
from harness.mariadb import MariaDB, free_port
from harness.redis_server import RedisServer

START_SECONDS = 20.0


class Store(Protocol):
    """Server that can be started and removed."""

    durability: str  # for the report: state of the data when a write is confirmed

    @property
    def url(self) -> str: ...

    @property
    def pid(self) -> int: ...

    def start(self) -> None: ...

    def remove(self) -> None: ...


class Server:
    """Program with its own directory and port. It has started when it accepts connections."""

    def __init__(self, name: str, durability: str) -> None:
        self.durability = durability
        self.port = free_port()
        self.directory = Path(tempfile.mkdtemp(prefix=f"tidings-{name}-"))
        self._name = name
        self._process: subprocess.Popen[bytes] | None = None
        atexit.register(self.remove)

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def start_command(self, command: Sequence[str | Path]) -> None:
        """Start the program, and wait until it accepts connections. Raises `RunFailed`."""
        log_path = self.directory / "log"
        with log_path.open("ab") as log:
            self._process = spawn.start(command, stdout=log, stderr=log)
        try:
            polling.wait_until_up(self._process, self._listens, log_path, seconds=START_SECONDS)
        except RuntimeError as error:
            raise RunFailed(f"{self._name}: {error}") from None

    def _listens(self) -> bool:
        try:
            socket.create_connection(("127.0.0.1", self.port)).close()
        except OSError:
            return False
        return True

    def remove(self) -> None:
        """Stop the program, and delete its directory."""
        if self._process is not None:
            self._process.send_signal(signal.SIGTERM)
            try:
                self._process.wait(10)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
            self._process = None
        shutil.rmtree(self.directory, ignore_errors=True)
        atexit.unregister(self.remove)


class PostgreSQL(Server):
    """PostgreSQL with its default settings, which are durable: `fsync` and `synchronous_commit` are on."""

    def __init__(self) -> None:
        super().__init__("postgres", "each commit is on disk (fsync, synchronous_commit)")

    @property
    def url(self) -> str:
        return f"postgresql://bench@{self.address}/postgres"

    def start(self) -> None:
        # PostgreSQL refuses to run as root.
        as_user: list[str] = []
        if os.geteuid() == 0:
            as_user = ["setpriv", "--reuid=postgres", "--regid=postgres", "--clear-groups", "--pdeathsig=KILL"]
            shutil.chown(self.directory, "postgres", "postgres")
        data = self.directory / "data"
        initdb: list[str | Path] = [
            *as_user,
            install.POSTGRESQL / "initdb",
            "-D",
            data,
            "-A",
            "trust",
            "-U",
            "bench",
            "--no-locale",
            "-E",
            "UTF8",
        ]
        done = subprocess.run(initdb, capture_output=True, text=True, cwd="/")
        if done.returncode:
            raise RunFailed(done.stderr[-1000:])
        settings = {
            "port": self.port,
            "listen_addresses": "127.0.0.1",
            "unix_socket_directories": self.directory,
            "shared_buffers": "128MB",
            "max_connections": 200,
            "fsync": "on",
            "synchronous_commit": "on",
        }
        options = [word for name, value in settings.items() for word in ("-c", f"{name}={value}")]
        self.start_command([*as_user, install.POSTGRESQL / "postgres", "-D", data, *options])
        self._wait_ready()

    def _wait_ready(self) -> None:
        command: list[str | Path] = [install.POSTGRESQL / "pg_isready", "-q", "-h", "127.0.0.1", "-p", str(self.port)]
        try:
            polling.wait_until(lambda: subprocess.run(command).returncode == 0, seconds=START_SECONDS)
        except TimeoutError:
            raise RunFailed("postgres does not get ready") from None


class DurableRedis(RedisServer):
    """Redis that writes and syncs its log before it responds."""

    durability = "each command is on disk before its answer (appendfsync always)"

    def __init__(self) -> None:
        super().__init__(options=("--appendonly", "yes", "--appendfsync", "always"))

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid


class DurableMariaDB:
    """MariaDB as in Tidings' other benchmarks."""

    durability = "each commit is on disk (innodb_flush_log_at_trx_commit=1)"

    def __init__(self) -> None:
        self._server = MariaDB(flush_log=1)

    @property
    def url(self) -> str:
        return self._server.url("tidings_business")

    @property
    def pid(self) -> int:
        assert self._server.pid is not None
        return self._server.pid

    def start(self) -> None:
        self._server.start()

    def remove(self) -> None:
        self._server.remove()


class Nats(Server):
    """nats-server.

    keeps: with JetStream, which syncs every write before it acknowledges it
    """

    def __init__(self, *, keeps: bool = True) -> None:
        said = "each message is on disk before its acknowledgement (sync_interval: always)" if keeps else "none"
        super().__init__("nats-server", said)
        self._keeps = keeps

    @property
    def url(self) -> str:
        return f"nats://{self.address}"

    def start(self) -> None:
        lines = [f'listen: "{self.address}"']
        if self._keeps:
            lines.append(f'jetstream {{ store_dir: "{self.directory / "store"}", sync_interval: always }}')
        settings = self.directory / "nats.conf"
        settings.write_text("\n".join(lines) + "\n")
        self.start_command([install.NATS_SERVER, "-c", settings])


class Mosquitto(Server):
    """Broker of the published comparison, without limits on messages in flight."""

    def __init__(self) -> None:
        super().__init__("mosquitto", "none")

    @property
    def url(self) -> str:
        return self.address

    def start(self) -> None:
        (program,) = packages.require(["mosquitto"], install.MOSQUITTO)
        settings = self.directory / "mosquitto.conf"
        lines = [
            f"listener {self.port} 127.0.0.1",
            "allow_anonymous true",
            "max_inflight_messages 0",
            "max_queued_messages 0",
            "set_tcp_nodelay true",
            "log_type error",
        ]
        # As root, the server would drop its rights and could not read its directory.
        settings.write_text("\n".join(lines) + ("\nuser root\n" if os.geteuid() == 0 else "\n"))
        self.start_command([program, "-c", settings])
