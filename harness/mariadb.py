"""A private MariaDB: its own directory, socket and port, gone when the process that started it ends."""

from __future__ import annotations

import atexit
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


def free_port() -> int:
    """A loopback port that nobody listens on at this moment, and that no outgoing connection will get."""
    while True:
        # Below those that kernels give to whoever does not ask for a certain one: from 32768 on Linux.
        port = 15_000 + secrets.randbelow(17_000)
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port


class MariaDB:
    """One server on one directory: `start` and `stop` as often as one likes, `kill9` for crashes, `remove` at the end.

    The user `root` has an empty password and may come in over TCP from 127.0.0.1. Stopped and removed at exit at the
    latest; when this process is itself killed, the kernel kills the server and only the directory is left behind.

    flush_log: innodb_flush_log_at_trx_commit; 1 is durable, 0 is fast and loses commits only when the server is killed.
    parent:    where its directory is made, if not where temporary files are.
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
        # As it greets, such as `10.11.14-MariaDB` or `8.0.12`; empty before the first start.
        self.version = ""

    def _find_programs(self) -> None:
        """Have the server's programs on this machine. Raises `PackageMissing`."""
        self._server, self._installer, _ = packages.require(packages.MARIADB)

    @property
    def pid(self) -> int | None:
        """The process id while it runs."""
        return self._process.pid if self._process else None

    @property
    def log_path(self) -> Path:
        """What the server says."""
        assert self.directory is not None
        return self.directory / "mariadbd.log"

    def url(self, schema: str, *, user: str = "root") -> str:
        """The address of one schema for SQLAlchemy. user: its name, or `name:password`."""
        return f"mysql+aiomysql://{user}@127.0.0.1:{self.port}/{schema}"

    def connect(
        self, schema: str | None = None, *, user: str = "root", password: str = ""
    ) -> pymysql.connections.Connection[Any]:
        """A blocking connection with autocommit, for setting the scene."""
        return pymysql.connect(
            host="127.0.0.1", port=self.port, user=user, password=password, database=schema, autocommit=True
        )

    def start(self) -> None:
        """Start and wait until it answers; the first time, make the directory. Raises `RuntimeError` with its log."""
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
            polling.wait_until_up(self._process, self._answers, self.log_path, seconds=START_SECONDS)
        except RuntimeError:
            self.kill9()
            raise

    def _answers(self) -> bool:
        try:
            connection = self.connect()
        except pymysql.err.MySQLError:
            return False
        # MariaDB puts a version before its own that old replicas take.
        self.version = str(connection.get_server_info()).removeprefix("5.5.5-")
        connection.close()
        return True

    def _environment(self) -> dict[str, str]:
        return dict(os.environ)

    def _command(self) -> list[str]:
        """The server on this directory, without the options that it was made with."""
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
        """Options of the server's address and size, which MariaDB and MySQL have in common."""
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
        """Stop in good order; the directory stays for the next `start`."""
        if self._process is None:
            return
        self._process.terminate()
        # A stopped process (SIGSTOP) does not see the request until it is continued.
        with contextlib.suppress(ProcessLookupError):
            self._process.send_signal(signal.SIGCONT)
        try:
            self._process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process = None

    def kill9(self) -> None:
        """The server is gone from one instruction to the next; returns when the kernel has buried it."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def pause(self) -> None:
        """It stands still: connections stay, and nothing is answered."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        """It goes on as if no time had passed."""
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)

    def restart(self) -> None:
        """Stop if it runs, then start on the same directory and port."""
        self.stop()
        self.start()

    def remove(self) -> None:
        """Kill and forget everything."""
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
        """Make the tables of the server's own. Raises `RuntimeError` with what it said."""
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
            # Ctrl-C while it works ends us, and `remove` runs at exit.
            start_new_session=True,
        )
        if done.returncode:
            raise RuntimeError(f"mariadb-install-db failed:\n{done.stdout[-1500:]}\n{done.stderr[-1500:]}")


def as_current_user() -> list[str]:
    """Options of a server that runs as whoever starts it."""
    # Only root is asked for the user to run as, and would otherwise be refused.
    return ["--user=root"] if os.geteuid() == 0 else []
