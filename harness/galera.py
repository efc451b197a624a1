"""Galera cluster on loopback: nodes that replicate to each other, which tests kill, isolate and restart."""

from __future__ import annotations

import atexit
import contextlib
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pymysql

from harness import packages, polling
from harness.mariadb import START_SECONDS, MariaDB, free_port

# Path of the provider, the same on every architecture of Debian, and its package.
PROVIDER = Path("/usr/lib/galera/libgalera_smm.so")
PACKAGE = "galera-4"
# State transfer for nodes that start from the same directory: a node that was unreachable receives only what it missed.
SCRIPTS = Path(__file__).parent / "galera_scripts"
# Seconds after which a silent node is suspected, and excluded; the provider's defaults are 5 and 15.
SUSPECT_SECONDS, INACTIVE_SECONDS = 2, 4

_POSITION = re.compile(r"WSREP: Recovered position:?\s+(\S+)")


class Node(MariaDB):
    """One server of a cluster. `start` returns when it has the state of the cluster."""

    def __init__(self, number: int, group_port: int, peers: str, *, flush_log: int, buffer_pool_mb: int) -> None:
        """group_port: port for the other nodes. peers: addresses of all nodes, `gcomm://…`."""
        super().__init__(flush_log=flush_log, buffer_pool_mb=buffer_pool_mb)
        provider = {
            "gmcast.listen_addr": f"tcp://127.0.0.1:{group_port}",
            "ist.recv_addr": f"127.0.0.1:{free_port()}",
            "gcache.size": "64M",
            "evs.keepalive_period": "PT0.5S",
            "evs.suspect_timeout": f"PT{SUSPECT_SECONDS}S",
            "evs.inactive_timeout": f"PT{INACTIVE_SECONDS}S",
            "evs.inactive_check_period": "PT0.25S",
            "evs.install_timeout": f"PT{INACTIVE_SECONDS}S",
        }
        self._durable = self._options
        self._cluster = (
            "--wsrep-on=ON",
            f"--wsrep-provider={PROVIDER}",
            f"--wsrep-provider-options={';'.join(f'{name}={value}' for name, value in provider.items())}",
            "--wsrep-cluster-name=tidings",
            f"--wsrep-node-name=node{number}",
            "--wsrep-node-address=127.0.0.1",
            "--wsrep-sst-method=handover",
            "--wsrep-slave-threads=2",
            "--binlog-format=ROW",
            "--innodb-autoinc-lock-mode=2",
        )
        self._peers = peers

    def copy(self, other: Node) -> None:
        """Make the directory as a copy of another node's, which must be stopped."""
        assert other.directory is not None
        self.directory = Path(tempfile.mkdtemp(prefix="tidings-galera-"))
        atexit.register(self.remove)
        shutil.copytree(other.directory / "data", self.directory / "data", ignore=shutil.ignore_patterns("galera.*"))
        self.port = free_port()

    def start(self, *, first: bool = False) -> None:
        """Start the node. Raises `RuntimeError` with its log. first: no other node runs."""
        address = f"--wsrep-cluster-address={'gcomm://' if first else self._peers}"
        self._options = (*self._durable, *self._cluster, address, *self._recover())
        super().start()
        self.wait_until("wsrep_ready", "ON")

    def _environment(self) -> dict[str, str]:
        return {**os.environ, "PATH": f"{SCRIPTS}{os.pathsep}{os.environ.get('PATH', os.defpath)}"}

    def _recover(self) -> tuple[str, ...]:
        """Return the option for the position to start from; after a crash only the tables contain it."""
        state = self.directory / "data" / "grastate.dat" if self.directory is not None else Path()
        if not state.is_file() or not re.search(r"^seqno: +-1$", state.read_text(), re.MULTILINE):
            return ()
        words = [*self._command(), *self._durable, *self._cluster, f"--wsrep-cluster-address={self._peers}"]
        done = subprocess.run([*words, "--wsrep-recover"], capture_output=True, text=True, timeout=START_SECONDS)
        found = _POSITION.findall(done.stdout + done.stderr)
        return (f"--wsrep-start-position={found[-1]}",) if found else ()

    def status(self, name: str) -> str:
        """Return a status variable of the server; empty when there is none, or the server does not respond."""
        with contextlib.suppress(pymysql.err.MySQLError), self.connect() as connection, connection.cursor() as cursor:
            cursor.execute("SHOW GLOBAL STATUS LIKE %s", (name,))
            row = cursor.fetchone()
            return str(row[1]) if row else ""
        return ""

    @property
    def is_ready(self) -> bool:
        """Return whether the node confirms within a second that it accepts writes."""
        try:
            connection = pymysql.connect(
                host="127.0.0.1", port=self.port, user="root", connect_timeout=1, read_timeout=1, write_timeout=1
            )
        except pymysql.err.MySQLError:
            return False
        try:
            with connection.cursor() as cursor:
                cursor.execute("SHOW GLOBAL STATUS LIKE 'wsrep_ready'")
                return cursor.fetchone() == ("wsrep_ready", "ON")
        except pymysql.err.MySQLError:
            return False
        finally:
            connection.close()

    def wait_until(self, name: str, value: str) -> None:
        """Wait until a status variable has this value. Raises `TimeoutError`."""
        polling.wait_until(
            lambda: self.status(name) == value,
            seconds=START_SECONDS,
            failure=lambda: f"{name} is {self.status(name)!r}, not {value!r}\n{self.log_tail()}",
        )

    def log_tail(self, size: int = 3000) -> str:
        """Return the end of its log."""
        return self.log_path.read_text(errors="replace")[-size:]

    def isolate(self, *, isolated: bool = True) -> None:
        """Isolate it from the other nodes, or reconnect it; clients reach it either way."""
        with self.connect() as connection, connection.cursor() as cursor:
            cursor.execute("SET GLOBAL wsrep_provider_options = %s", (f"gmcast.isolate={int(isolated)}",))


class Galera:
    """Cluster of nodes that all accept writes."""

    def __init__(self, count: int = 3, *, flush_log: int = 1, buffer_pool_mb: int = 64) -> None:
        _require_provider()
        ports = [free_port() for _ in range(count)]
        peers = "gcomm://" + ",".join(f"127.0.0.1:{port}" for port in ports)
        self.nodes = [
            Node(number, port, peers, flush_log=flush_log, buffer_pool_mb=buffer_pool_mb)
            for number, port in enumerate(ports, 1)
        ]

    def start(self) -> None:
        """Start all nodes for the first time."""
        first, *others = self.nodes
        # So that the other nodes start with a state of this cluster, and need no transfer.
        first.start(first=True)
        first.stop()
        for node in others:
            node.copy(first)
        first.start(first=True)
        for node in others:
            node.start()
        self.wait_until_whole()

    def wait_until_whole(self) -> None:
        """Wait until every node is in the cluster and synchronised."""
        for node in self.nodes:
            node.wait_until("wsrep_cluster_size", str(len(self.nodes)))
            node.wait_until("wsrep_local_state_comment", "Synced")

    def remove(self) -> None:
        """Kill all nodes and remove their directories."""
        for node in self.nodes:
            node.remove()


@contextlib.contextmanager
def running(count: int = 3, **limits: int) -> Iterator[Galera]:
    """Provide a cluster within the block."""
    cluster = Galera(count, **limits)
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.remove()


def _require_provider() -> None:
    packages.require_file(PROVIDER, PACKAGE)
