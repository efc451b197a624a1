"""A private Redis: its own directory and port, gone when the process that started it ends."""

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
# Slots of a Redis Cluster.
SLOTS = 16_384


class RedisServer:
    """One server: `start` and `stop` as often as one likes, `kill9` for crashes, `remove` at the end. It keeps nothing
    on disk, so that after each start it is empty.

    clustered: it is to be a node of a Redis Cluster.
    """

    def __init__(self, *, clustered: bool = False, options: tuple[str, ...] = ()) -> None:
        (self._program,) = packages.require(packages.REDIS)
        self._options = (*options, *(("--cluster-enabled", "yes") if clustered else ()))
        self._process: subprocess.Popen[bytes] | None = None
        self.directory = Path(tempfile.mkdtemp(prefix="tidings-redis-"))
        self.port = free_port()
        atexit.register(self.remove)

    @property
    def pid(self) -> int | None:
        """While it runs."""
        return self._process.pid if self._process is not None else None

    @property
    def url(self) -> str:
        """Where it is."""
        return f"redis://127.0.0.1:{self.port}"

    def client(self) -> redis.Redis:
        """A blocking client, for setting the scene."""
        return redis.Redis(host="127.0.0.1", port=self.port, socket_timeout=5)

    def start(self) -> None:
        """Start and wait until it answers. Raises `RuntimeError` with its log."""
        assert self._process is None, "it runs already"
        log_path = self.directory / "redis.log"
        command = [self._program, "--bind", "127.0.0.1", "--port", str(self.port), "--dir", str(self.directory)]
        with log_path.open("ab") as log:
            self._process = spawn.start(
                [*command, "--save", "", "--appendonly", "no", *self._options], stdout=log, stderr=log
            )
        try:
            polling.wait_until_up(self._process, self._answers, log_path, seconds=START_SECONDS)
        except RuntimeError:
            self.kill9()
            raise

    def _answers(self) -> bool:
        try:
            with self.client() as client:
                client.ping()
        except redis.RedisError:
            return False
        return True

    def stop(self) -> None:
        """Stop in good order."""
        self._end(signal.SIGTERM)

    def kill9(self) -> None:
        """The server is gone from one instruction to the next."""
        self._end(signal.SIGKILL)

    def _end(self, number: int) -> None:
        if self._process is not None:
            self._process.send_signal(number)
            with contextlib.suppress(ProcessLookupError):
                # A process that stands still does not see a request to end.
                self._process.send_signal(signal.SIGCONT)
            self._process.wait()
            self._process = None

    def pause(self) -> None:
        """It stands still: connections stay, and nothing is answered."""
        assert self._process is not None
        os.kill(self._process.pid, signal.SIGSTOP)

    def resume(self) -> None:
        """It goes on as if no time had passed."""
        assert self._process is not None
        os.kill(self._process.pid, signal.SIGCONT)

    def remove(self) -> None:
        """Kill and forget everything."""
        self.kill9()
        shutil.rmtree(self.directory, ignore_errors=True)
        atexit.unregister(self.remove)


class RedisCluster:
    """Servers that are one Redis Cluster, each with a part of the slots."""

    def __init__(self, count: int = 3) -> None:
        self.servers: Sequence[RedisServer] = [RedisServer(clustered=True) for _ in range(count)]

    @property
    def url(self) -> str:
        """Where the first of them is, which knows the others."""
        return self.servers[0].url

    def start(self) -> None:
        """Start, and wait until all slots are served. Raises `RuntimeError`, and `TimeoutError` for the slots."""
        share = -(-SLOTS // len(self.servers))
        for index, server in enumerate(self.servers):
            server.start()
            first = index * share
            with server.client() as client:
                client.execute_command("CLUSTER ADDSLOTSRANGE", first, min(first + share, SLOTS) - 1)
                client.execute_command("CLUSTER SET-CONFIG-EPOCH", index + 1)
                if index:
                    client.execute_command("CLUSTER MEET", "127.0.0.1", self.servers[0].port)
        polling.wait_until(lambda: all(map(self._serves, self.servers)), seconds=START_SECONDS)

    def _serves(self, server: RedisServer) -> bool:
        with server.client() as client:
            information = client.execute_command("CLUSTER INFO")
        return information["cluster_state"] == "ok" and information["cluster_known_nodes"] == str(len(self.servers))

    def remove(self) -> None:
        """Kill and forget everything."""
        for server in self.servers:
            server.remove()
