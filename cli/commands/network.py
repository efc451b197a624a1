"""`tidings network`: runs a node of the network, or several as workers, forked from one process."""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from fastapi import FastAPI

import network.services
import network.settings
from cli import guard, process
from cli.child_process import ChildProcess, Spawn
from cli.fork_server import ForkServer, ForkServerEnded
from network.settings import Settings

log = logging.getLogger(__name__)

# Seconds that a worker has to stop, in addition to the period in which it drains its connections.
STOP_SECONDS = 30.0


class Workers:
    """Runs one worker per environment. Workers inherit the output of this process."""

    def __init__(
        self,
        command: str,
        environments: Sequence[Mapping[str, str]],
        *,
        spawn: Spawn | None = None,
        grace: float = 0.0,
    ) -> None:
        """Make the workers.

        spawn: as of `ChildProcess`.
        grace: seconds that each worker has to stop, in addition to `STOP_SECONDS`.
        """
        self._workers = [
            ChildProcess(command, variables, _Log(index), name=f"worker {index}", spawn=spawn)
            for index, variables in enumerate(environments)
        ]
        self._seconds = STOP_SECONDS + grace

    async def run(self, stop: asyncio.Event, ready: Callable[[Mapping[str, Any]], None]) -> None:
        """Keep the workers running until `stop`. Raises `CommandFailure` when one does not become ready at the start.

        ready: called once all workers are ready, with the ready message of the first.
        """
        keepers: list[asyncio.Task[None]] = []
        try:
            started = await asyncio.gather(*[worker.start() for worker in self._workers])
            ready(started[0])
            keepers += [asyncio.create_task(worker.keep()) for worker in self._workers]
            await stop.wait()
        finally:
            for keeper in keepers:
                keeper.cancel()
            await asyncio.gather(*keepers, return_exceptions=True)
            await asyncio.gather(*[worker.end(self._seconds) for worker in self._workers])


class _Log:
    """Logs the events of one worker."""

    def __init__(self, index: int) -> None:
        self._index = index

    def ended(self, status: int, again: float) -> None:
        log.error("worker.ended", extra={"worker": self._index, "status": status, "again_s": again})

    def not_started(self, error: Exception) -> None:
        log.error("worker.not_started", extra={"worker": self._index, "error": str(error)})

    def is_back(self, where: Mapping[str, Any]) -> None:
        """Ignore the event: the worker itself logs that it is ready."""

    def does_not_stop(self) -> None:
        log.error("worker.killed", extra={"worker": self._index})


add_arguments = process.add_arguments


def run(options: argparse.Namespace) -> int:
    """Serve until SIGINT or SIGTERM."""
    command = _Network()
    return process.run("network", network.settings.Settings.read, command.serve, options, fork=command.fork)


class _Network:
    """One node in this process, or several in processes that a fork server forks."""

    def __init__(self) -> None:
        self._server: ForkServer | None = None

    def fork(self, settings: Settings, pipes: Sequence[int]) -> None:
        """Fork the server if there are several workers."""
        if settings.workers > 1:
            _load_late_modules()
            self._server = ForkServer.start(_run_worker, pipes)

    async def serve(self, settings: Settings, stop: asyncio.Event, ready: process.Ready) -> None:
        """Serve until `stop`."""
        if self._server is None:
            await network.services.run(settings, stop, ready)
            return
        server, ended = self._server, asyncio.Event()
        environments = [worker_environment(os.environ, settings, index) for index in range(settings.workers)]
        workers = Workers("network", environments, spawn=server.spawn, grace=settings.drain)
        running = asyncio.create_task(workers.run(ended, lambda announced: ready(_addresses(announced))))
        ends = [asyncio.create_task(event.wait()) for event in (stop, server.ended)]
        try:
            await asyncio.wait([running, *ends], return_when=asyncio.FIRST_COMPLETED)
            ended.set()
            await running
            if server.ended.is_set() and not stop.is_set():
                raise ForkServerEnded("the process that forks the workers has ended")
        finally:
            for end in ends:
                end.cancel()
            # A successor of this process needs the names and ports of workers without a server.
            await server.wait_for_left(process.ORPHAN_GRACE + 1.0)
            server.close()


def _load_late_modules() -> None:
    """Load what the web framework loads with the first application, so that the workers share it."""
    application = FastAPI()

    @application.get("/")
    async def answer(parameter: str = "") -> None:
        """Return nothing."""


def _run_worker(pipes: Mapping[str, int]) -> int:
    with guard.one_line("tidings network") as outcome:
        options = argparse.Namespace(ready_fd=pipes["ready"], lifeline_fd=pipes["lifeline"], variables_fd=None)
        outcome.status = run(options)
    return outcome.status


def worker_environment(variables: Mapping[str, str], settings: Settings, index: int) -> dict[str, str]:
    """Return the environment of one of several workers; each worker is a separate node.

    index: number of the worker, from 0.
    """
    own = {
        "TIDINGS_NETWORK_WORKERS": "1",
        "TIDINGS_NETWORK_REUSE_PORT": "1",
        "TIDINGS_NETWORK_NODE": f"{settings.cluster.node}-{index}"[-64:],
        "TIDINGS_PROFILE": "",
    }
    if settings.worker_port:
        own["TIDINGS_NETWORK_WORKER_PORT"] = str(settings.worker_port + index)
    for name, address in (
        ("TIDINGS_NETWORK_NODE_ADDRESS", settings.cluster.node_address),
        ("TIDINGS_NETWORK_METRICS_ADDRESS", settings.metrics_address),
    ):
        if address is not None and address[1]:
            host, port = address
            own[name] = f"[{host}]:{port + index}" if ":" in host else f"{host}:{port + index}"
    return {**variables, **own}


def _addresses(announced: Mapping[str, Any]) -> Mapping[str, Any]:
    return {name: value for name, value in announced.items() if name != "process"}
