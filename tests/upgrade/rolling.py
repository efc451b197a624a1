"""Installation under load whose processes are replaced by those of another revision, one after the other."""

from __future__ import annotations

import asyncio
import collections
import contextlib
import dataclasses
import itertools
import random
import subprocess
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from pathlib import Path

from harness import client
from harness.client import Business
from harness.cluster import Cluster, ProcessCounts
from harness.http_connection import NoResponse
from harness.mariadb import MariaDB
from harness.processes import Process, ProcessEnded, Revision, inherited
from harness.redis_server import RedisServer
from harness.sink_process import SinkProcess
from tests.crash.scene import ENVIRONMENT, Phase, Scene, number, verdict

SHAPE = ProcessCounts(webapps=2, coreapps=2, networks=2, shards=2)
# Messages per second.
RATE = 30.0
# Seconds of load before and after a change.
AROUND = 1.0
# Seconds between two calls of the other kinds.
PAUSE = 0.2
# Order of replacement from `docs/operations.md`.
ORDER = ("network", "coreapp", "webapp", "robots")
# One of each kind, so that both revisions work together. A step back goes the other way.
SECOND = ("network2", "coreapp2", "webapp2", "robots")
ALLOWED = frozenset({429, 503})
# Requests without a response while a Webapp is stopped: each of two clients may just have sent one on an idle
# connection that the Webapp closes.
WITHOUT_RESPONSE = 2


@dataclasses.dataclass(slots=True)
class Step:
    """Result of one change."""

    name: str
    # Number of responses by status; None for no response.
    responses: collections.Counter[int | None] = dataclasses.field(default_factory=collections.Counter)
    refused: str = ""  # reason why a process did not start; empty when it did

    def disallowed(self) -> dict[int, int]:
        """Return the number of responses by status, without 2xx, 429 and 503."""
        return {
            status: count
            for status, count in self.responses.items()
            if status is not None and not 200 <= status < 300 and status not in ALLOWED
        }

    def without_response(self) -> int:
        """Return the number of requests without a response, beyond those that a stopping Webapp may leave."""
        return max(0, self.responses[None] - (WITHOUT_RESPONSE if self.name.startswith("webapp") else 0))

    def row(self) -> str:
        responses = ", ".join(
            f"{status or 'none'}: {count}" for status, count in sorted(self.responses.items(), key=str)
        )
        return f"{self.name:<48} {responses}{'; ' + self.refused if self.refused else ''}"


class Rolling:
    """Installation, its load and the results."""

    def __init__(self, cluster: Cluster, scene: Scene) -> None:
        self.cluster = cluster
        self.scene = scene
        self.steps: list[Step] = []
        self._texts = itertools.count(1)

    @property
    def processes(self) -> dict[str, Process]:
        return self.cluster.processes

    def use(self, program: Revision) -> None:
        """Start processes of this revision from now on."""
        for process in self.processes.values():
            process.program = program

    @contextlib.asynccontextmanager
    async def step(self, name: str) -> AsyncIterator[Step]:
        """Keep up the load during this block, and for some seconds before and after it."""
        step, phase, over = Step(name), Phase(name), asyncio.Event()
        self.steps.append(step)
        self.scene.phases.append(phase)
        load = client.Load([], [])

        def work() -> Iterator[tuple[str, str]]:
            while not over.is_set():
                yield self.scene.next_message()

        async with asyncio.TaskGroup() as group:
            group.create_task(client.open_loop(self.scene.business, work(), RATE, load=load))
            group.create_task(self._call_others(step, over))
            try:
                await asyncio.sleep(AROUND)
                yield step
                await asyncio.sleep(AROUND)
            finally:
                over.set()
        phase.sent = load.sent
        step.responses.update(sent.request.status for sent in phase.sent)
        print(step.row(), flush=True)

    async def _call_others(self, step: Step, over: asyncio.Event) -> None:
        """Make calls other than messages, contacts and settings, by a separate client."""
        business = Business(*self.cluster.api_ports)
        business.use(self.scene.business.token)
        calls = (
            ("POST", "/v1/contacts", {"blocking": "wait", "contacts": [f"+{number(3)}"]}),
            ("GET", "/v1/settings/application", None),
            ("GET", "/v1/users/admin", None),
        )
        for method, path, body in itertools.cycle(calls):
            if over.is_set():
                return
            try:
                status, _ = await business.call(method, path, body)
            except NoResponse:
                step.responses[None] += 1
            else:
                step.responses[status] += 1
            await asyncio.sleep(PAUSE)

    async def migrate(self, program: Revision) -> None:
        """Run `tidings migrate` of a revision. Raises `CalledProcessError`."""
        environment = {**inherited(), **self.processes["webapp"].environment}
        command = program.command_line("migrate")
        await asyncio.to_thread(subprocess.run, command, cwd=program.tree, env=environment, check=True)

    async def replace_all(self, program: Revision) -> None:
        """Replace the processes one after the other, each when the one before is ready."""
        await self.replace(program, [name for command in ORDER for name in self.cluster.process_names(command)])

    async def replace(self, program: Revision, names: Iterable[str]) -> None:
        """Replace these processes, one after the other. The others stay at their revision."""
        for name in names:
            async with self.step(f"{name} to {_label(program)}"):
                await self._restart(self.processes[name], program)

    async def try_restart(self, name: str, program: Revision) -> Step:
        """Restart one process. When it refuses to start, record the reason, and leave it stopped."""
        async with self.step(f"{name} again of {_label(program)}") as step:
            try:
                await self._restart(self.processes[name], program)
            except ProcessEnded as ended:
                step.refused = str(ended).strip().splitlines()[-1]
        return step

    async def _restart(self, process: Process, program: Revision) -> None:
        await process.stop()
        process.program = program
        await process.start()

    def problems(self, also: Sequence[int] = ()) -> list[str]:
        """Return disallowed responses, and everything that was lost, duplicated or out of order.

        also: further statuses that are allowed.
        """
        wrong = [
            f"{step.name}: {count} responses {status}"
            for step in self.steps
            for status, count in step.disallowed().items()
            if status not in also
        ]
        # Revisions that answer otherwise close connections as well.
        if not also:
            wrong += [
                f"{step.name}: {step.without_response()} without a response"
                for step in self.steps
                if step.without_response()
            ]
        return [*wrong, *verdict(self.scene.phases, self.scene).describe(examples=5).splitlines()]


@contextlib.asynccontextmanager
async def running(directory: Path, mariadb: MariaDB, redis: RedisServer, program: Revision) -> AsyncIterator[Rolling]:
    """Run an installation of a revision: two of each process, and a business that is logged in, on both Webapps."""
    # Default lease: processes hand shards over when they are stopped, so a busy machine loses no lease.
    variables = {**ENVIRONMENT, "TIDINGS_EMBEDDED": "0", "TIDINGS_LEASE_SECONDS": "30"}
    cluster = Cluster(directory, mariadb, redis, variables, shape=SHAPE)
    # The robots' tables are in a file that only they use.
    cluster.processes["robots"].environment["TIDINGS_EMBEDDED"] = "1"
    sink_directory = directory / "sink"
    sink_directory.mkdir()
    async with cluster, SinkProcess(sink_directory, cluster.webhook_secret, verify_every=1) as sink:
        scene = Scene(cluster, sink, Business(*cluster.api_ports), random.Random(1))
        rolling = Rolling(cluster, scene)
        rolling.use(program)
        await rolling.migrate(program)
        await cluster.start()
        await scene.open()
        yield rolling


def _label(program: Revision) -> str:
    return program.tree.name if program.tree is not None else "this revision"
