"""A whole installation: network, robots, Coreapp and Webapp with their databases, on ports that stay the same."""

from __future__ import annotations

import base64
import contextlib
import os
import secrets
import shutil
import signal
import sqlite3
import urllib.request
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import msgspec

from harness import ledger, polling
from harness.client import Business
from harness.mariadb import MariaDB, free_port
from harness.processes import Process

# Each process needs those before it.
ORDER = ("network", "robots", "coreapp", "webapp")
FAMILIES = ("business", "network")


class _Line(msgspec.Struct):
    number: str
    id: str
    attempt: int
    sha256: str


class Installation:
    """Processes of one installation, as an asynchronous context manager that stops them at its end.

    mariadb:     server with the tables of business and network; `None` for SQLite in the data directory.
    environment: variables for every process, in addition to the harness's.
    profile:     have each process write `profile-<name>.txt` into the directory when it stops.
    data_dir:    `None` for one in `directory`, which also has the logs.
    shards:      number of shards.
    coreapps:    number of Coreapps that share them: `coreapp`, `coreapp2` and so on.
    schemas:     prefix of the databases on the server; another one for each installation.
    """

    def __init__(
        self,
        directory: Path,
        mariadb: MariaDB | None,
        environment: Mapping[str, str] | None = None,
        *,
        profile: bool = False,
        data_dir: Path | None = None,
        shards: int = 1,
        coreapps: int = 1,
        schemas: str = "tidings",
    ) -> None:
        self.directory = directory
        self._profile = profile
        self.mariadb = mariadb
        self._schemas = schemas
        self.data_dir = data_dir or directory / "data"
        self.data_dir.mkdir(parents=True, exist_ok=True)
        self.api_port = free_port()
        self.webhook_secret = "whsec_" + base64.b64encode(secrets.token_bytes(32)).decode()
        ports = [free_port() for _ in range(6)]
        self.metrics_ports = {"coreapp": ports[3], "standby": ports[5]}
        self.common = {
            "TIDINGS_DATA_DIR": str(self.data_dir),
            "TIDINGS_WEBHOOK_SECRET": self.webhook_secret,
            "TIDINGS_ROBOTS_LOG": str(self.data_dir / "robots.jsonl"),
            "TIDINGS_ROBOTS_LOG_MB": "0",
            "TIDINGS_API_ADDRESS": f"127.0.0.1:{self.api_port}",
            "TIDINGS_NETWORK_HTTP_ADDRESS": f"127.0.0.1:{ports[0]}",
            "TIDINGS_NETWORK_HTTP_URL": f"http://127.0.0.1:{ports[0]}",
            "TIDINGS_NETWORK_TCP_ADDRESS": f"127.0.0.1:{ports[1]}",
            "TIDINGS_COREAPP_ADDRESS": f"127.0.0.1:{ports[2]}",
            "TIDINGS_COREAPP_METRICS_ADDRESS": f"127.0.0.1:{ports[3]}",
            "COREAPP_HOSTNAME": "coreapp",
            "TIDINGS_SHARDS": str(shards),
            "TIDINGS_EMBEDDED": "1",
            "TIDINGS_OUTGOING_ALLOW": "127.0.0.0/8,::1",
            "TIDINGS_REENGAGEMENT_WINDOW": "0",
            "TIDINGS_STATUS_DELAY_MS": "0",
        }
        for family in FAMILIES if mariadb is not None else ():
            self.common[f"TIDINGS_{family.upper()}_DB_URL"] = mariadb.url(f"{schemas}_{family}")
        self.common |= environment or {}
        self.robots_log = Path(self.common["TIDINGS_ROBOTS_LOG"])
        self.processes = {name: Process(name, name, self._environment(name), directory) for name in ORDER}
        standby = {
            **self._environment("standby"),
            "COREAPP_HOSTNAME": "standby",
            "TIDINGS_COREAPP_ADDRESS": f"127.0.0.1:{ports[4]}",
            "TIDINGS_COREAPP_METRICS_ADDRESS": f"127.0.0.1:{ports[5]}",
        }
        self.standby = Process("standby", "coreapp", standby, directory)
        # By name of the process, for those that serve metrics.
        self.metrics_urls = {
            "webapp": f"http://127.0.0.1:{self.api_port}/metrics?format=prometheus",
            "coreapp": f"http://127.0.0.1:{self.metrics_ports['coreapp']}/metrics",
            "network": f"{self.common['TIDINGS_NETWORK_HTTP_URL']}/metrics",
        }
        for number in range(2, coreapps + 1):
            self._add_coreapp(f"coreapp{number}")
        self._sort()

    def _add_coreapp(self, name: str) -> None:
        link, metrics = free_port(), free_port()
        self.metrics_ports[name] = metrics
        self.metrics_urls[name] = f"http://127.0.0.1:{metrics}/metrics"
        own = {
            "COREAPP_HOSTNAME": name,
            "TIDINGS_COREAPP_ADDRESS": f"127.0.0.1:{link}",
            "TIDINGS_COREAPP_METRICS_ADDRESS": f"127.0.0.1:{metrics}",
        }
        self._add(name, "coreapp", own)

    def _add(self, name: str, command: str, environment: Mapping[str, str]) -> None:
        self.processes[name] = Process(name, command, {**self._environment(name), **environment}, self.directory)

    def _sort(self) -> None:
        """Sort the processes so that each follows those that it needs."""
        self.processes = {name: self.processes[name] for command in ORDER for name in self.process_names(command)}

    def process_names(self, command: str) -> list[str]:
        """Return the names of the processes that this command starts, without the standby."""
        return [name for name, process in self.processes.items() if process.command == command]

    def profiles(self) -> dict[str, Path]:
        """Return the profiles that processes have written, by their names."""
        paths = {name: self._profile_path(name) for name in sorted(self.processes)}
        return {name: path for name, path in paths.items() if path.exists()}

    def restart_profiles(self) -> None:
        """Have the running processes discard what their profiles have so far; without profiles, do nothing."""
        for process in self.processes.values() if self._profile else ():
            if process.pid is not None:
                os.kill(process.pid, signal.SIGUSR2)

    def _profile_path(self, name: str) -> Path:
        return self.directory / f"profile-{name}.txt"

    def _environment(self, name: str) -> dict[str, str]:
        profile = {"TIDINGS_PROFILE": str(self._profile_path(name))} if self._profile else {}
        return {**self.common, **profile}

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.stop()

    async def start(self, names: Iterable[str] = (), extra: Mapping[str, str] | None = None) -> None:
        """Start these or all, each once the one before is ready. Raises `ProcessEnded` and `TimeoutError`."""
        for name in names or self.processes:
            await self.processes[name].start(extra)

    async def stop(self) -> None:
        """Stop the running processes in reverse order."""
        await self.standby.stop()
        for process in reversed(self.processes.values()):
            await process.stop()

    async def business(self) -> Business:
        """Return a client that is logged in."""
        business = Business(self.api_port)
        await business.log_in()
        return business

    def pids(self) -> dict[str, int]:
        """Return the ids of the running processes by name, including the database server."""
        found = {name: process.pid for name, process in self.processes.items()}
        found["standby"] = self.standby.pid
        found["mariadbd"] = self.mariadb.pid if self.mariadb is not None else None
        return {name: pid for name, pid in found.items() if pid is not None}

    def metrics(self) -> dict[str, str]:
        """Return the Prometheus text of each running process that has one; fetches them in sequence, blocking."""
        found = {}
        for name, url in self.metrics_urls.items():
            if self.processes[name].pid is not None:
                headers = {"Authorization": f"Apikey {self.common.get('WA_API_KEY', '')}"}
                with urllib.request.urlopen(urllib.request.Request(url, headers=headers), timeout=10) as response:
                    found[name] = response.read().decode()
        return found

    def keep_metrics(self) -> None:
        """Save the present metrics of the processes in the directory of their logs."""
        for name, text in self.metrics().items():
            (self.directory / f"metrics-{name}.txt").write_text(text)

    def shown_bytes(self) -> int:
        """Return the size of the robots' log in bytes, as the start for a later `list_shown`."""
        return self.robots_log.stat().st_size if self.robots_log.exists() else 0

    def list_shown(self, since: int = 0) -> list[ledger.Shown]:
        """Return the messages that robots have shown. since: earlier result of `shown_bytes`."""
        return self.read_shown(since)[0]

    def read_shown(self, since: int = 0) -> tuple[list[ledger.Shown], int]:
        """Return the messages that robots have shown, and the size of the log that was read.

        since: earlier size
        """
        if not self.robots_log.exists():
            return [], since
        decode = msgspec.json.Decoder(_Line).decode
        with self.robots_log.open("rb") as record:
            record.seek(since)
            whole, newline, _ = record.read().rpartition(b"\n")  # the last line may be incomplete
        lines = [decode(line) for line in whole.splitlines()]
        shown = [ledger.Shown(line.number, line.id, line.attempt, line.sha256) for line in lines]
        return shown, since + len(whole) + len(newline)

    def owners(self) -> dict[str, int]:
        """Return the number of shards of each Coreapp; shards without an owner are under an empty name."""
        with self._tables("business") as cursor:
            cursor.execute("SELECT owner, COUNT(*) FROM shards GROUP BY owner")
            return dict(cursor.fetchall())

    async def wait_for_owners(self, wanted: Mapping[str, int], *, seconds: float = 30.0) -> None:
        """Wait until the shards are owned as wanted. Raises `TimeoutError`."""
        await polling.until(lambda: self.owners() == wanted, seconds=seconds, pause=0.02)

    def read_value(self, family: str, sql: str) -> Any:
        """Return the single value that this SQL selects in a family of tables; `None` for no row."""
        rows = self.read_rows(family, sql)
        return rows[0][0] if rows else None

    def read_rows(self, family: str, sql: str) -> Sequence[Sequence[Any]]:
        """Return the rows that this SQL selects, read directly from the database."""
        with self._tables(family) as cursor:
            cursor.execute(sql)
            rows: Sequence[Sequence[Any]] = cursor.fetchall()
        return rows

    def change(self, family: str, statements: Iterable[str]) -> None:
        """Run statements on a family of tables in one transaction, directly in the database."""
        with self._tables(family) as cursor:
            for statement in statements:
                cursor.execute(statement)

    @contextlib.contextmanager
    def _tables(self, family: str) -> Iterator[Any]:
        """Provide a cursor, and commit at the end."""
        if self.mariadb is not None:
            with self.mariadb.connect(f"{self._schemas}_{family}") as connection, connection.cursor() as cursor:
                yield cursor
                connection.commit()
            return
        url = self.common.get(f"TIDINGS_{family.upper()}_DB_URL", f"sqlite+aiosqlite:///{self.data_dir}/{family}.db")
        with contextlib.closing(sqlite3.connect(url.partition("///")[2], timeout=30)) as file, file:
            yield file.cursor()

    def save(self) -> None:
        """Copy all state for a later `restore`. Only the database server may run."""
        if self.mariadb is not None:
            for family in FAMILIES:
                _copy_schema(self.mariadb, f"{self._schemas}_{family}", f"saved_{family}")
        shutil.rmtree(self.directory / "saved", ignore_errors=True)
        shutil.copytree(self.data_dir, self.directory / "saved")

    def restore(self) -> None:
        """Restore the state of `save`. Only the database server may run."""
        if self.mariadb is not None:
            for family in FAMILIES:
                _copy_schema(self.mariadb, f"saved_{family}", f"{self._schemas}_{family}")
        shutil.rmtree(self.data_dir)
        shutil.copytree(self.directory / "saved", self.data_dir)


def remove_databases(server: MariaDB, schemas: str = "tidings") -> None:
    """Remove the databases of an installation from this server, if any exist. schemas: their prefix."""
    with server.connect() as connection, connection.cursor() as cursor:
        for family in FAMILIES:
            cursor.execute(f"DROP DATABASE IF EXISTS {schemas}_{family}")


def keep_logs(source: Path, target: Path) -> None:
    """Copy the logs, metrics and profiles that the processes of an installation have written."""
    target.mkdir(parents=True, exist_ok=True)
    for kept in (*source.glob("*.log"), *source.glob("metrics-*.txt"), *source.glob("profile-*.txt")):
        shutil.copy(kept, target)


def _copy_schema(server: MariaDB, source: str, target: str) -> None:
    with server.connect() as connection, connection.cursor() as cursor:
        cursor.execute(f"DROP DATABASE IF EXISTS {target}")
        cursor.execute(f"CREATE DATABASE {target} CHARACTER SET utf8mb4")
        cursor.execute("SELECT table_name FROM information_schema.tables WHERE table_schema = %s", (source,))
        for (table,) in cursor.fetchall():
            cursor.execute(f"CREATE TABLE {target}.{table} LIKE {source}.{table}")
            cursor.execute(f"INSERT INTO {target}.{table} SELECT * FROM {source}.{table}")
