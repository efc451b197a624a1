"""Private MariaDB server with its own directory, socket and port, which ends with the process that started it."""

from __future__ import annotations

import atexit
import collections
import contextlib
import os
import secrets
import shutil
import signal
import socket
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import pymysql

from harness import packages, polling, spawn

START_SECONDS = 60.0
STOP_SECONDS = 30.0


# Processes of pytest that run at the same time at most, and the latest ports of this process.
_WORKERS = 8
_latest: collections.deque[int] = collections.deque(maxlen=500)


def free_port() -> int:
    """Return a loopback port without a listener, which no outgoing connection will get.

    Another process of the same run returns other ports, and this one does not return one of its latest again: nothing
    may listen there yet.
    """
    worker = int(os.environ.get("PYTEST_XDIST_WORKER", f"gw{_WORKERS - 1}").removeprefix("gw")) % _WORKERS
    while True:
        # Below the ephemeral ports that the kernel assigns: from 32768 on Linux.
        port = 15_000 + _WORKERS * secrets.randbelow(17_000 // _WORKERS) + worker
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            if port not in _latest:
                _latest.append(port)
                return port


class MariaDB:
    """One server on one directory: `start` and `stop` any number of times, `kill9` for crashes, `remove` at the end.

    The user `root` has an empty password and may connect over TCP from 127.0.0.1. The server is stopped and removed at
    exit at the latest. When this process is itself killed, the kernel kills the server and its directory is left
    behind.

    flush_log: innodb_flush_log_at_trx_commit; 1 is durable, 0 is fast and loses commits only when the server is killed.
    buffer_pool_mb: innodb_buffer_pool_size, MiB.
    options:   further options of the server.
    parent:    folder for its directory; `None` for that of temporary files.
    """

    def __init__(
        self,
        *,
        flush_log: int = 1,
        buffer_pool_mb: int = 128,
        options: tuple[str, ...] = (),
        parent: Path | None = None,
    ) -> None:
        self._find_programs()
        self._options = (f"--innodb-flush-log-at-trx-commit={flush_log}", *options)
        self._buffer_pool_mb = buffer_pool_mb
        self._parent = parent
        self._process: subprocess.Popen[bytes] | None = None
        self.directory: Path | None = None
        self.port = 0
        # As in its greeting, such as `10.11.14-MariaDB` or `8.0.12`; empty before the first start.
        self.version = ""

    def _find_programs(self) -> None:
        """Find the server's programs, and install them if missing. Raises `PackageMissing`."""
        self._server, self._installer, _ = packages.require(packages.MARIADB)

    @property
    def pid(self) -> int | None:
        """Process id while the server runs; else `None`."""
        return self._process.pid if self._process else None

    @property
    def log_path(self) -> Path:
        """Path of the server's log."""
        assert self.directory is not None
        return self.directory / "mariadbd.log"

    def url(self, schema: str, *, user: str = "root") -> str:
        """Return the URL of one schema for SQLAlchemy. user: its name, or `name:password`."""
        return f"mysql+aiomysql://{user}@127.0.0.1:{self.port}/{schema}"

    def connect(
        self, schema: str | None = None, *, user: str = "root", password: str = ""
    ) -> pymysql.connections.Connection[Any]:
        """Return a blocking connection with autocommit, for test set-up."""
        return pymysql.connect(
            host="127.0.0.1", port=self.port, user=user, password=password, database=schema, autocommit=True
        )

    def start(self) -> None:
        """Start and wait until it responds; the first time, make the directory. Raises `RuntimeError` with its log."""
        assert self._process is None, "it runs already"
        if self.directory is None:
            self._install()
        assert self.directory is not None
        with self.log_path.open("ab") as log:
            self._process = spawn.start(
                [*self._command(), *self._options],
                env=self._environment(),
                stdout=log,
                stderr=log,
            )
        try:
            polling.wait_until_up(self._process, self._responds, self.log_path, seconds=START_SECONDS)
        except RuntimeError:
            self.kill9()
            raise

    def _responds(self) -> bool:
        try:
            connection = self.connect()
        except pymysql.err.MySQLError:
            return False
        # MariaDB prefixes its version with one that old replicas accept.
        self.version = str(connection.get_server_info()).removeprefix("5.5.5-")
        connection.close()
        return True

    def _environment(self) -> dict[str, str]:
        return dict(os.environ)

    def _command(self) -> list[str]:
        """Return the command of the server on this directory, without the options of the constructor."""
        assert self.directory is not None
        return [
            self._server,
            "--no-defaults",
            *as_current_user(),
            f"--datadir={self.directory / 'data'}",
            f"--tmpdir={self.directory}",
            *self._limits(),
            "--innodb-log-file-size=64M",
        ]

    def _limits(self) -> list[str]:
        """Return the options of address and size that MariaDB and MySQL have in common."""
        assert self.directory is not None
        return [
            f"--socket={self.directory / 'socket'}",
            f"--pid-file={self.directory / 'pid'}",
            "--bind-address=127.0.0.1",
            f"--port={self.port}",
            f"--innodb-buffer-pool-size={self._buffer_pool_mb}M",
            "--max-connections=500",
            "--skip-name-resolve",
            "--skip-log-bin",
            "--performance-schema=OFF",
        ]

    def stop(self) -> None:
        """Stop normally; the directory stays for the next `start`."""
        if self._process is None:
            return
        self._process.terminate()
        # A stopped process (SIGSTOP) does not handle the request until it is continued.
        with contextlib.suppress(ProcessLookupError):
            self._process.send_signal(signal.SIGCONT)
        try:
            self._process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process = None

    def kill9(self) -> None:
        """Kill the server at once; returns when its process has ended."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def pause(self) -> None:
        """Suspend the server: connections stay open, and get no response."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Continue a suspended server."""
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)

    def restart(self) -> None:
        """Stop if it runs, then start on the same directory and port."""
        self.stop()
        self.start()

    def remove(self) -> None:
        """Kill the server and remove its directory."""
        self.kill9()
        if self.directory is not None:
            shutil.rmtree(self.directory, ignore_errors=True)
            self.directory = None
        atexit.unregister(self.remove)

    def _install(self) -> None:
        self.directory = Path(tempfile.mkdtemp(prefix="tidings-mariadb-", dir=self._parent))
        atexit.register(self.remove)
        self.port = free_port()
        self._initialize()

    def _initialize(self) -> None:
        """Make the system tables of the server. Raises `RuntimeError` with its output."""
        assert self.directory is not None
        done = subprocess.run(
            [
                self._installer,
                "--no-defaults",
                *as_current_user(),
                f"--datadir={self.directory / 'data'}",
                # A server that starts deletes others' temporary tables from the common directory.
                f"--tmpdir={self.directory}",
                "--auth-root-authentication-method=normal",
                "--skip-test-db",
                "--skip-name-resolve",
                "--innodb-log-file-size=64M",
            ],
            capture_output=True,
            text=True,
            # Ctrl-C reaches only this process, whose exit calls `remove`.
            start_new_session=True,
        )
        if done.returncode:
            raise RuntimeError(f"mariadb-install-db failed:\n{done.stdout[-1500:]}\n{done.stderr[-1500:]}")


def as_current_user() -> list[str]:
    """Return the options of a server that runs as the current user."""
    # Only root has to name a user, and would otherwise be refused.
    return ["--user=root"] if os.geteuid() == 0 else []
