"""Installation that is prepared once, and restored to that state before each run."""

from __future__ import annotations

import asyncio
import collections
import contextlib
import dataclasses
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from pathlib import Path

from benchmarks.rig import contents, profiles
from benchmarks.rig.profiles import Stacks
from benchmarks.rig.sampler import Sampler
from benchmarks.rig.session import Session
from harness import ledger
from harness.client import Business
from harness.cluster import Cluster, ProcessCounts
from harness.installation import Installation, keep_logs
from harness.mariadb import MariaDB
from harness.redis_server import RedisServer
from harness.sink_process import SinkProcess

PREFIX = "1555011"  # of robots that read at once
MOST_ROBOTS = 10_000
ENVIRONMENT = {
    "TIDINGS_MESSAGES_RATE": "0",
    "TIDINGS_CONTACTS_RATE": "0",
    "TIDINGS_ROBOTS_KINDS": "11",
}
ONE_OF_EACH = ProcessCounts(webapps=1, coreapps=1, networks=1, shards=1)


def recipients(robots: int, messages: int) -> list[str]:
    """Return the number for each message: the robots in round robin."""
    return [f"{PREFIX}{index % robots:04d}" for index in range(messages)]


@dataclasses.dataclass(frozen=True, slots=True)
class Scene:
    """Running installation with its webhook set and all three statuses enabled."""

    installation: Installation
    business: Business
    sink: SinkProcess
    helpers: dict[str, int] = dataclasses.field(default_factory=dict)  # process ids of further participants, by name

    @property
    def recipients(self) -> Installation:
        """Installation whose robots are the recipients."""
        return self.installation

    def list_shown(self, since: int) -> list[ledger.Shown]:
        """Return the messages that recipients have shown, with the ids that the business knows.

        since: earlier result of `recipients.shown_bytes`
        """
        return self.installation.list_shown(since)

    def sampler(self) -> Sampler:
        """Return a sampler of its processes, the webhook, the database and the helpers."""
        return Sampler(
            lambda: {**self.installation.pids(), "sink": self.sink.pid, **self.helpers},
            metrics=self.installation.metrics,
            mariadb=self.installation.mariadb,
        )


@dataclasses.dataclass(frozen=True, slots=True)
class Stage:
    """Prepared installation."""

    installation: Installation
    owners: Mapping[str, int]  # number of shards by Coreapp that runs wait for; empty not to wait
    profiles: dict[str, dict[str, Stacks]]  # by run and process; filled if the processes write profiles
    keep: Path | None = None  # directory for logs; None to discard them

    @contextlib.asynccontextmanager
    async def performance(self, name: str, extra: Mapping[str, str] | None = None) -> AsyncIterator[Scene]:
        """Start all processes from the prepared state, with additional variables, and stop them at the end."""
        installation = self.installation
        await asyncio.to_thread(installation.restore)
        async with SinkProcess(installation.directory, installation.webhook_secret) as sink:
            try:
                await installation.start(extra=extra)
                if self.owners:
                    await installation.wait_for_owners(self.owners)
                business = await installation.business()
                await business.set_webhook(sink.url)
                yield Scene(installation, business, sink)
            finally:
                with contextlib.suppress(OSError):
                    await asyncio.to_thread(installation.keep_metrics)
                await installation.stop()
                for process, path in installation.profiles().items():
                    stacks = self.profiles.setdefault(name, {}).setdefault(process, collections.Counter())
                    stacks.update(profiles.parse(path.read_text()))
                if self.keep is not None:
                    keep_logs(installation.directory, self.keep / name)


@contextlib.asynccontextmanager
async def prepared(
    session: Session,
    *,
    robots: int,
    shape: ProcessCounts = ONE_OF_EACH,
    environment: Mapping[str, str] | None = None,
    set_up: Callable[[Installation], Awaitable[None]] | None = None,
) -> AsyncIterator[Stage]:
    """Prepare an installation on the session's database: robots registered, password changed, templates created.

    Only one can exist at a time. Several network nodes get a private Redis.

    robots:      number of registered robots
    environment: variables of all runs; limits are off by default
    set_up:      called with the running installation before its state is saved; None for no call
    """
    mariadb = await session.database()
    keep = Path(session.options.keep_logs) if session.options.keep_logs else None
    directory = session.directory / f"stage-{time.monotonic_ns()}"
    directory.mkdir()
    variables = {**ENVIRONMENT, "TIDINGS_ROBOTS_PER_KIND": str(robots), **(environment or {})}
    with contextlib.ExitStack() as stack:
        await asyncio.to_thread(_clear, mariadb)
        redis = None
        if shape.networks > 1:
            redis = RedisServer()
            stack.callback(redis.remove)
            await asyncio.to_thread(redis.start)
        profile = session.options.profile
        async with Cluster(directory, mariadb, redis, variables, shape=shape, profile=profile) as installation:
            print(f"registering {robots:,} robots ...", flush=True)
            began = time.monotonic()
            await installation.start()
            await contents.create_templates(await installation.business())
            if set_up is not None:
                await set_up(installation)
            await installation.stop()
            await asyncio.to_thread(installation.save)
            print(f"prepared in {time.monotonic() - began:.0f} s", flush=True)
            owners = dict.fromkeys(installation.process_names("coreapp"), shape.shards // shape.coreapps)
            yield Stage(installation, owners if shape.coreapps > 1 else {}, session.report.profiles, keep)


def _clear(server: MariaDB) -> None:
    """Drop the databases of an earlier installation."""
    with server.connect() as connection, connection.cursor() as cursor:
        for schema in ("tidings_business", "tidings_network", "saved_business", "saved_network"):
            cursor.execute(f"DROP DATABASE IF EXISTS {schema}")
