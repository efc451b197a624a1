"""Private Redis server with its own directory and port, which ends with the process that started it."""

from __future__ import annotations

import atexit
import contextlib
import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

import redis

from harness import packages, polling, spawn
from harness.mariadb import free_port

START_SECONDS = 20.0
# Name of the master in the Sentinels.
MASTER = "presence"
# Hash slots of a Redis Cluster.
HASH_SLOTS = 16_384


def _client(port: int) -> redis.Redis:
    return redis.Redis(host="127.0.0.1", port=port, socket_timeout=5)


def _responds(port: int) -> bool:
    try:
        with _client(port) as client:
            client.ping()
    except redis.RedisError:
        return False
    return True


class RedisServer:
    """One server: `start` and `stop` any number of times, `kill9` for crashes, `remove` at the end.

    It keeps nothing on disk, so it is empty after each start.

    clustered: run as a node of a Redis Cluster.
    valkey:    run Valkey instead of Redis.
    """

    def __init__(self, *, clustered: bool = False, valkey: bool = False, options: tuple[str, ...] = ()) -> None:
        self._program = packages.find_valkey() if valkey else packages.require(packages.REDIS)[0]
        self._options = (*options, *(("--cluster-enabled", "yes") if clustered else ()))
        self._process: subprocess.Popen[bytes] | None = None
        self.directory = Path(tempfile.mkdtemp(prefix="tidings-redis-"))
        self.port = free_port()
        atexit.register(self.remove)

    @property
    def pid(self) -> int | None:
        """Process id while it runs; else `None`."""
        return self._process.pid if self._process is not None else None

    @property
    def url(self) -> str:
        """URL of the server."""
        return f"redis://127.0.0.1:{self.port}"

    @property
    def program(self) -> str:
        """Path of the server's program."""
        return self._program

    def client(self) -> redis.Redis:
        """Return a blocking client, for test set-up."""
        return _client(self.port)

    def start(self) -> None:
        """Start and wait until it responds. Raises `RuntimeError` with its log."""
        assert self._process is None, "it runs already"
        log_path = self.directory / "redis.log"
        command = [self._program, "--bind", "127.0.0.1", "--port", str(self.port), "--dir", str(self.directory)]
        with log_path.open("ab") as log:
            self._process = spawn.start(
                [*command, "--save", "", "--appendonly", "no", *self._options], stdout=log, stderr=log
            )
        try:
            polling.wait_until_up(self._process, lambda: _responds(self.port), log_path, seconds=START_SECONDS)
        except RuntimeError:
            self.kill9()
            raise

    def stop(self) -> None:
        """Stop normally."""
        self._end(signal.SIGTERM)

    def kill9(self) -> None:
        """Kill the server at once."""
        self._end(signal.SIGKILL)

    def _end(self, number: int) -> None:
        if self._process is not None:
            self._process.send_signal(number)
            with contextlib.suppress(ProcessLookupError):
                # A stopped process (SIGSTOP) does not handle the request until it is continued.
                self._process.send_signal(signal.SIGCONT)
            self._process.wait()
            self._process = None

    def pause(self) -> None:
        """Suspend the server: connections stay open, and get no response."""
        assert self._process is not None
        os.kill(self._process.pid, signal.SIGSTOP)

    def resume(self) -> None:
        """Continue a suspended server."""
        assert self._process is not None
        os.kill(self._process.pid, signal.SIGCONT)

    def remove(self) -> None:
        """Kill the server and remove its directory."""
        self.kill9()
        shutil.rmtree(self.directory, ignore_errors=True)
        atexit.unregister(self.remove)


class RedisSentinel:
    """One Sentinel of a master."""

    def __init__(self, master: RedisServer, *, quorum: int) -> None:
        self._program = master.program
        self._process: subprocess.Popen[bytes] | None = None
        self.directory = Path(tempfile.mkdtemp(prefix="tidings-sentinel-"))
        self.port = free_port()
        self._configuration = self.directory / "sentinel.conf"
        self._configuration.write_text(
            f"port {self.port}\nbind 127.0.0.1\ndir {self.directory}\n"
            f"sentinel monitor {MASTER} 127.0.0.1 {master.port} {quorum}\n"
            f"sentinel down-after-milliseconds {MASTER} 1000\nsentinel failover-timeout {MASTER} 5000\n"
        )

    def client(self) -> redis.Redis:
        """Return a blocking client."""
        return _client(self.port)

    def start(self) -> None:
        """Start and wait until it responds. Raises `RuntimeError` with its log."""
        log_path = self.directory / "sentinel.log"
        with log_path.open("ab") as log:
            command = [self._program, str(self._configuration), "--sentinel"]
            self._process = spawn.start(command, stdout=log, stderr=log)
        polling.wait_until_up(self._process, lambda: _responds(self.port), log_path, seconds=START_SECONDS)

    def master_port(self) -> int:
        """Return the port of the server that it considers the master."""
        with self.client() as client:
            _, port = client.execute_command("SENTINEL", "GET-MASTER-ADDR-BY-NAME", MASTER)
        return int(port)

    def has_found(self, *, replicas: int, sentinels: int) -> bool:
        """Return whether it has found this number of replicas of the master, and of other Sentinels."""
        with self.client() as client:
            found = client.sentinel_master(MASTER)
        return (found["num-slaves"], found["num-other-sentinels"]) == (replicas, sentinels)

    def remove(self) -> None:
        """Kill it and remove its directory."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None
        shutil.rmtree(self.directory, ignore_errors=True)


class SentinelledRedis:
    """A master, a replica that follows it, and three Sentinels, two of which decide on a fail-over."""

    def __init__(self, *, valkey: bool = False) -> None:
        master = RedisServer(valkey=valkey)
        options = ("--replicaof", f"127.0.0.1 {master.port}", "--repl-diskless-sync-delay", "0")
        self.servers = [master, RedisServer(valkey=valkey, options=options)]
        self._sentinels = [RedisSentinel(master, quorum=2) for _ in range(3)]
        self._scheme = "valkey" if valkey else "redis"

    @property
    def url(self) -> str:
        """URL of the Sentinels and their master."""
        hosts = ",".join(f"127.0.0.1:{sentinel.port}" for sentinel in self._sentinels)
        return f"{self._scheme}+sentinel://{hosts}/{MASTER}"

    @property
    def master(self) -> RedisServer:
        """Server that all Sentinels consider the master."""
        (port,) = {sentinel.master_port() for sentinel in self._sentinels}
        (found,) = (server for server in self.servers if server.port == port)
        return found

    def start(self) -> None:
        """Start, and wait until a fail-over is possible. Raises `RuntimeError` and `TimeoutError`."""
        for server in self.servers:
            server.start()
        for sentinel in self._sentinels:
            sentinel.start()
        self.wait_until_complete()

    def wait_until_complete(self) -> None:
        """Wait until the replica has the master's data. Raises `TimeoutError`."""
        count = len(self._sentinels) - 1
        polling.wait_until(lambda: all(s.has_found(replicas=1, sentinels=count) for s in self._sentinels), seconds=60.0)
        polling.wait_until(lambda: any(map(_follows, self.servers)), seconds=60.0)

    def fail_over(self) -> None:
        """Make a Sentinel start a fail-over, though the master is healthy."""
        with self._sentinels[0].client() as client:
            client.execute_command("SENTINEL", "FAILOVER", MASTER)

    def wait_for_fail_over(self, former: RedisServer) -> None:
        """Wait until all Sentinels have another master. Raises `TimeoutError`."""
        ports = lambda: {sentinel.master_port() for sentinel in self._sentinels}  # noqa: E731
        polling.wait_until(lambda: ports() == {s.port for s in self.servers if s is not former}, seconds=60.0)

    def remove(self) -> None:
        """Kill all processes and remove their directories."""
        for sentinel in self._sentinels:
            sentinel.remove()
        for server in self.servers:
            server.remove()


def _follows(server: RedisServer) -> bool:
    with server.client() as client:
        return client.info("replication").get("master_link_status") == "up"


class RedisCluster:
    """Servers that form one Redis Cluster, each with a part of the hash slots."""

    def __init__(self, count: int = 3) -> None:
        self.servers: Sequence[RedisServer] = [RedisServer(clustered=True) for _ in range(count)]

    @property
    def url(self) -> str:
        """URL of the first server, which knows the others."""
        return self.servers[0].url

    def start(self) -> None:
        """Start, and wait until all hash slots are served. Raises `RuntimeError` and `TimeoutError`."""
        share = -(-HASH_SLOTS // len(self.servers))
        for index, server in enumerate(self.servers):
            server.start()
            first = index * share
            with server.client() as client:
                client.execute_command("CLUSTER ADDSLOTSRANGE", first, min(first + share, HASH_SLOTS) - 1)
                client.execute_command("CLUSTER SET-CONFIG-EPOCH", index + 1)
                if index:
                    client.execute_command("CLUSTER MEET", "127.0.0.1", self.servers[0].port)
        polling.wait_until(lambda: all(map(self._serves, self.servers)), seconds=START_SECONDS)

    def _serves(self, server: RedisServer) -> bool:
        with server.client() as client:
            information = client.execute_command("CLUSTER INFO")
        return information["cluster_state"] == "ok" and information["cluster_known_nodes"] == str(len(self.servers))

    def remove(self) -> None:
        """Kill the servers and remove their directories."""
        for server in self.servers:
            server.remove()
