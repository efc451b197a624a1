"""Installation under load, with the delays of requests and of whole messages."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import itertools
import random
from collections.abc import AsyncIterator, Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

from harness import client, ledger, measure, polling
from harness.client import Business, Sent
from harness.installation import Installation, keep_logs
from harness.mariadb import MariaDB
from harness.sink import Record
from harness.sink_process import SinkProcess
from tests.reliability.scenario import FILE
from tests.security.figures import Figures, Form

Item = TypeVar("Item")

ENVIRONMENT = {
    "TIDINGS_MESSAGES_RATE": "0",
    "TIDINGS_CONTACTS_RATE": "0",
    "TIDINGS_ROBOTS_KINDS": "11",
    "TIDINGS_ROBOTS_PER_KIND": "1000",
    "TIDINGS_LEASE_SECONDS": "3",
}
SETTLE_SECONDS = 120.0
_WORDS = ("quick", "brown", "foxes", "jump", "over", "lazy", "dogs", "and", "come", "back", "at", "night")


def number(index: int) -> str:
    """Return the number of a robot that reads."""
    return f"1555011{index:04d}"


def figures_of(test: str) -> Figures:
    """Return the recorder of the figures of a test, named by its file."""
    figures = Figures(Form(long=True), FILE)
    figures.test = f"tests/load/{test}"
    return figures


class LoadScene:
    """Installation with a logged-in business, a webhook and known contacts, and everything sent and received."""

    def __init__(self, installation: Installation, sink: SinkProcess, business: Business, robots: int) -> None:
        self.installation = installation
        self.sink = sink
        self.business = business
        self.numbers = [number(index) for index in range(robots)]
        self.sent: list[Sent] = []
        self.records: list[Record] = []
        self.shown: list[ledger.Shown] = []
        self._shown_bytes = 0
        self.rng = random.Random(0)
        # Messages of the present call of `send` that have been started.
        self.progress = 0
        self._count = itertools.count()

    async def warm_up(self) -> None:
        """Send one message to each recipient, so that all sessions exist."""
        await self.business.check_contacts(self.numbers)
        await self.send(self.numbers, 200.0)
        await self.settle()
        # Pauses of this process would count as delays of the servers.
        gc.collect()
        gc.freeze()
        gc.set_threshold(100_000, 50, 100)

    async def send(self, numbers: Sequence[str], rate: float) -> list[Sent]:
        """Send a message to each of these numbers, `rate` per second."""
        work = ((each, self.text()) for each in numbers)
        load = await client.open_loop(self.business, work, rate, progress=self._note)
        self.sent += load.sent
        return load.sent

    async def send_for(self, seconds: float, rate: float, choose: Callable[[], str]) -> list[Sent]:
        """Send `rate` messages per second for `seconds` seconds, to recipients that `choose` returns."""
        return await self.send([choose() for _ in range(int(seconds * rate))], rate)

    @contextlib.asynccontextmanager
    async def sending(self, rate: float, choose: Callable[[], str]) -> AsyncIterator[list[Sent]]:
        """Send messages until the block ends. Yields the list that has them after the block."""
        found: list[Sent] = []
        is_over = False

        def work() -> Iterator[tuple[str, str]]:
            while not is_over:
                yield choose(), self.text()

        loading = asyncio.create_task(client.open_loop(self.business, work(), rate))
        try:
            yield found
        finally:
            is_over = True
            found += (await loading).sent
            self.sent += found

    def _note(self, count: int) -> None:
        self.progress = count

    def text(self) -> str:
        """Return a text of about 100 characters that is unique in the run."""
        return f"#{next(self._count):07d} {' '.join(self.rng.choices(_WORDS, k=16))}"

    async def collect(self) -> None:
        """Fetch the callbacks that the webhook has received."""
        self.records += await self.sink.take()

    async def settle(self, seconds: float = SETTLE_SECONDS) -> None:
        """Wait until every accepted message has been shown and reported as read. Raises `TimeoutError`."""
        accepted = {one.request.message_id for one in self.sent if one.request.accepted}
        found = set(measure.completion_times(self.records))

        async def is_complete() -> bool:
            await self.collect()
            found.update(measure.completion_times(self.records))
            return accepted <= found

        await polling.until(is_complete, seconds=seconds, pause=0.25)

    def whole_delays(self, sent: Collection[Sent]) -> list[float]:
        """Return the seconds from the request to the last callback of each of these messages that are complete."""
        done = measure.completion_times(self.records)
        return [done[one.request.message_id] - one.started for one in sent if one.request.message_id in done]

    async def check_off(self, sent: Sequence[Sent]) -> None:
        """Wait until these messages are complete, reconcile them, and forget them.

        Anything about them that comes later is unexpected. Raises `TimeoutError` and `AssertionError`.
        """
        accepted = {one.request.message_id for one in sent if one.request.accepted}
        found: set[str] = set()

        async def is_complete() -> bool:
            await self.collect()
            found.update(measure.completion_times(self.records))
            return accepted <= found

        await polling.until(is_complete, seconds=SETTLE_SECONDS, pause=1.0)
        self._read_shown()
        texts = {one.request.digest for one in sent}
        records, self.records = _split(self.records, lambda record: record.message_id in accepted)
        shown, self.shown = _split(self.shown, lambda line: line.digest in texts)
        self.sent = [one for one in self.sent if one.request.digest not in texts]
        problems = _reconcile(sent, shown, records).describe(examples=5)
        assert not problems, problems

    def _read_shown(self) -> None:
        shown, self._shown_bytes = self.installation.read_shown(self._shown_bytes)
        self.shown += shown

    def verdict(self) -> ledger.Verdict:
        """Reconcile everything sent, shown and reported that was not checked off."""
        self._read_shown()
        return _reconcile(self.sent, self.shown, self.records)

    def require_balance(self) -> None:
        """Raise `AssertionError` if a message was lost, doubled or altered."""
        problems = self.verdict().describe(examples=5)
        assert not problems, problems

    def jobs(self) -> int:
        """Return the number of rows in the job queue."""
        return int(self.installation.read_value("business", "SELECT COUNT(*) FROM jobs"))


def _reconcile(sent: Collection[Sent], shown: Sequence[ledger.Shown], records: Collection[Record]) -> ledger.Verdict:
    statuses = [
        ledger.Status(record.event_id, record.message_id, record.status)
        for record in records
        if record.status != "inbound" and record.response_status == 200
    ]
    return ledger.reconcile([one.request for one in sent], shown, statuses, [], echoing="none")


def _split(items: Sequence[Item], is_first: Callable[[Item], bool]) -> tuple[list[Item], list[Item]]:
    """Return the items for which the condition holds, and the others."""
    first: list[Item] = []
    others: list[Item] = []
    for item in items:
        (first if is_first(item) else others).append(item)
    return first, others


@contextlib.asynccontextmanager
async def under_load(
    directory: Path,
    *,
    robots: int = 1000,
    environment: Mapping[str, str] | None = None,
    mariadb: MariaDB | None = None,
    shards: int = 1,
    coreapps: int = 1,
    keep: str | None = None,
) -> AsyncIterator[LoadScene]:
    """Start an installation with warm sessions.

    robots: number of recipients
    keep: folder for the logs of the processes
    """
    variables = {**ENVIRONMENT, "TIDINGS_ROBOTS_PER_KIND": str(robots), **(environment or {})}
    installation = Installation(directory, mariadb, variables, shards=shards, coreapps=coreapps)
    async with installation, SinkProcess(directory, installation.webhook_secret) as sink:
        try:
            await installation.start()
            scene = LoadScene(installation, sink, await installation.business(), robots)
            await scene.business.set_webhook(sink.url)
            await scene.warm_up()
            yield scene
        finally:
            if keep:
                keep_logs(directory, Path(keep))


def p99(seconds: Sequence[float]) -> float:
    """Return the 99th percentile in milliseconds."""
    return measure.percentiles(seconds)["p99"] * 1000


def took(sent: Collection[Sent]) -> list[float]:
    """Return the seconds of each accepted request."""
    return [one.took for one in sent if one.request.accepted]


def slowest(sent: Collection[Sent], since: float, count: int = 20) -> str:
    """Describe the slowest accepted requests: when they started, and their milliseconds.

    since: Unix seconds from which the starts are counted
    """
    found = sorted((one for one in sent if one.request.accepted), key=lambda one: -one.took)[:count]
    found.sort(key=lambda one: one.started)
    return ", ".join(f"{one.started - since:.1f} s: {one.took * 1000:.0f}" for one in found)
