"""Errors in the delivery of callbacks: none repeats a callback without end, and only the webhook's count
against it."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Sequence

import pytest

from coreapp.journal.change import Change
from coreapp.webhook import delivery, retry
from coreapp.webhook.delivery import Deliveries
from coreapp.webhook.poster import Poster
from coreapp.webhook.queue import CallbackQueue
from coreapp.webhook.target import CallbackTarget
from tests.coreapp.signals import soon
from tests.manual_clock import ManualClock
from tidings.aio.batcher import BatcherClosed, BatcherFull
from tidings.egress import addresses
from tidings.egress.guard import EgressGuard
from tidings.egress.settings import OutgoingSettings
from tidings.storage.business.callbacks import Callback


class Journal:
    """Journal that keeps its changes, and is full or broken when the test sets it so."""

    def __init__(self) -> None:
        self.changes: list[Change] = []
        self.error: Exception | None = None

    def put(self, change: Change, *, urgent: bool = False) -> None:
        if self.error is not None:
            raise self.error
        self.changes.append(change)


class Scene:
    """Webhook that responds with `response`, and a queue with one callback for it."""

    def __init__(self) -> None:
        self.response = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"
        self.posts = 0
        self.clock = ManualClock(1_700_000_000.0)
        self.journal = Journal()
        self.queue = CallbackQueue(10, self.clock, self.load)
        self.guard: object = EgressGuard(OutgoingSettings(addresses.LOOPBACK))
        self.callback = Callback(
            1, 0, "15550000000", "a subject", "status_change", b"{}", int(self.clock.now() * 1000), 0, 0, "evt_1"
        )

    async def load(self, after: int, limit: int) -> Sequence[Callback]:
        return []

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                await reader.readuntil(b"\r\n\r\n")
                await reader.readexactly(2)
                self.posts += 1
                writer.write(self.response)
        writer.close()

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        server = await asyncio.start_server(self.serve, "127.0.0.1", 0)
        target = CallbackTarget(
            f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/", 1, retry.Policy(), [b"k" * 32]
        )
        deliveries = Deliveries(
            self.queue,
            self.journal,  # type: ignore[arg-type]
            lambda: target,
            poster=Poster(self.guard, timeout=20.0),  # type: ignore[arg-type]
            clock=self.clock,
        )
        stop = asyncio.Event()
        await self.queue.start(0)
        self.queue.offer([self.callback])
        task = asyncio.create_task(deliveries.run(stop))
        yield
        stop.set()
        await task
        await self.queue.close()
        server.close()

    async def scheduled(self) -> None:
        """Wait until an attempt has failed."""
        await soon(lambda: self.queue.scheduled > 0)

    def advance(self, seconds: float) -> None:
        self.clock.advance(seconds)
        self.queue.release_due()


class Surprising:
    """Guard with a bug."""

    async def connect(self, host: str, port: int) -> None:
        raise LookupError("a mistake of ours")


async def given_up(scene: Scene) -> None:
    """Advance days until the callback is a dead letter, after as many attempts as any other."""
    for attempt in range(1, retry.MIN_ATTEMPTS):
        await scene.scheduled()
        assert scene.callback.attempt == attempt
        scene.advance(24 * 3600)
    await soon(lambda: any(change.dead_callbacks for change in scene.journal.changes))
    failed = [change.failed_callbacks for change in scene.journal.changes[:-1]]
    assert failed == [(scene.callback,)] * (retry.MIN_ATTEMPTS - 1)
    assert scene.callback.attempt == retry.MIN_ATTEMPTS
    assert not len(scene.queue)


async def test_a_101_response_is_a_failed_attempt() -> None:
    scene = Scene()
    scene.response = b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n"
    async with scene.running():
        await given_up(scene)
    assert scene.posts == retry.MIN_ATTEMPTS
    assert scene.callback.last_error == "HTTP 101"


async def test_an_unexpected_error_counts_as_a_failed_attempt(
    caplog: pytest.LogCaptureFixture,
) -> None:
    scene = Scene()
    scene.guard = Surprising()
    async with scene.running():
        await scene.scheduled()
        # No sooner than after any other failure.
        assert scene.callback.due_at == int((scene.clock.now() + retry.Policy().backoff) * 1000)
        await given_up(scene)
    assert scene.callback.last_error == "LookupError: a mistake of ours"
    surprises = [record for record in caplog.records if record.message == "webhook.unexpected"]
    assert len(surprises) == retry.MIN_ATTEMPTS
    assert surprises[0].exc_info


@pytest.mark.parametrize("error", [BatcherFull("journal"), BatcherClosed("journal")])
async def test_a_failing_journal_does_not_count_as_failed_webhook_attempts(error: Exception) -> None:
    scene = Scene()
    scene.journal.error = error
    async with scene.running():
        for posts in range(1, retry.MIN_ATTEMPTS + 5):
            await scene.scheduled()
            assert (scene.posts, scene.callback.attempt) == (posts, 0)
            # Long after the day in which a callback must be accepted.
            scene.advance(24 * 3600)
        await scene.scheduled()
        scene.journal.error = None
        scene.advance(delivery.UNMARKED_SECONDS)
        await soon(lambda: not len(scene.queue))
    assert [change.finished_callbacks for change in scene.journal.changes] == [(1,)]


async def test_an_unexpected_error_with_a_full_journal_ends_no_worker() -> None:
    scene = Scene()
    scene.guard = Surprising()
    scene.journal.error = BatcherFull("journal")
    async with scene.running():
        await scene.scheduled()
        scene.journal.error = None
        scene.advance(delivery.UNMARKED_SECONDS)
        await soon(lambda: bool(scene.journal.changes))
    assert scene.journal.changes[0].failed_callbacks == (scene.callback,)
