"""Reason why a job still waits: written only when an attempt has failed, and deleted with the job."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Callable, Mapping
from typing import BinaryIO

import pytest
import sqlalchemy as sa

from coreapp.media import uploads
from coreapp.sending import failures
from harness import polling
from tests.coreapp import media_scene
from tests.coreapp.conftest import BUSINESS, World
from tests.coreapp.scripted_network import HOLD
from tests.coreapp.signals import soon
from tidings.client import held_back
from tidings.client.errors import NetworkTimeout, NetworkUnavailable, NetworkUnreached
from tidings.objects.directory import DirectoryStore
from tidings.storage.business import job_errors, queue_views
from tidings.storage.business.queue_views import JobView, RowFilter
from tidings.storage.database import Database
from tidings.wire import device as frames

FULL, SLOW, FINE = "15550110001", "15550110002", "15550110003"


async def queued(database: Database) -> Mapping[str, JobView]:
    """Return jobs by recipient."""
    async with database.reading() as connection:
        return {job.recipient: job for job in await queue_views.list_jobs(connection, RowFilter())}


async def until(database: Database, is_so: Callable[[Mapping[str, JobView]], bool]) -> Mapping[str, JobView]:
    """Wait until the condition holds for the jobs on disk."""

    async def look() -> bool:
        return is_so(await queued(database))

    await polling.until(look, pause=0.01)
    return await queued(database)


async def rows(database: Database) -> int:
    async with database.reading() as connection:
        return int((await connection.execute(sa.select(sa.func.count()).select_from(job_errors.table))).scalar_one())


@pytest.fixture(autouse=True)
def written_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(failures, "WRITE_SECONDS", 0.01)
    monkeypatch.setattr(held_back, "LEAST_SECONDS", 0.05)


async def test_a_job_records_its_failed_attempts_and_the_record_is_deleted_once_sent(
    world: World,
) -> None:
    world.add_phones(FULL, SLOW, FINE)
    running = await world.start()
    await world.connected(running)
    await running.client.check(FULL, SLOW, FINE)
    world.network.policy = lambda send: {FULL: frames.MAILBOX_FULL, SLOW: frames.OVERLOADED}.get(send.to)
    for number in (FINE, FULL, SLOW):
        await running.client.send(number, "x")
    found = await until(world.database, lambda jobs: all(n in jobs and jobs[n].attempts > 1 for n in (FULL, SLOW)))
    assert found.keys() == {FULL, SLOW}
    assert (found[FULL].last_error, found[SLOW].last_error) == (failures.HELD_BACK, failures.OVERLOADED)
    assert all(job.tried_at >= job.created_at for job in found.values())
    # The job that was sent at once has left no row.
    assert await rows(world.database) == 2
    world.network.policy = lambda send: None
    await world.sink.signals.until(lambda: len(world.sink.taken()) == 3)
    await world.until_jobs(0)
    assert len(running.shard.sending.failures) == 0
    assert await rows(world.database) == 0


async def test_jobs_sent_at_the_first_attempt_write_no_error_rows(world: World) -> None:
    world.add_phones(FINE)
    running = await world.start()
    await world.connected(running)
    await running.client.check(FINE)
    statements: list[str] = []
    sa.event.listen(
        world.database.engine.sync_engine,
        "before_cursor_execute",
        lambda connection, cursor, statement, *more: statements.append(statement),
    )
    for count in range(3):
        await running.client.send(FINE, str(count))
    await world.sink.signals.until(lambda: len(world.sink.taken()) == 3)
    assert any("jobs" in statement for statement in statements)
    assert not [statement for statement in statements if "job_errors" in statement]


async def test_failed_key_fetches_and_lost_connections_are_recorded_for_their_jobs(
    world: World,
) -> None:
    world.add_phones(SLOW, FINE)
    running = await world.start()
    await world.connected(running)
    await running.client.check(SLOW, FINE)
    world.network.policy = lambda send: HOLD
    await running.client.send(SLOW, "on its way")
    await world.network.signals.until(lambda: len(world.network.sends) == 1)
    world.network.away()
    await running.client.send(FINE, "x")
    found = await until(world.database, lambda jobs: bool(jobs[FINE].attempts))
    assert found[FINE].status == queue_views.NEW
    assert found[FINE].last_error == failures.no_response(NetworkUnreached())
    assert found[SLOW].attempts == 0
    await world.network.listen()
    found = await until(world.database, lambda jobs: bool(jobs[SLOW].attempts))
    assert (found[SLOW].attempts, found[SLOW].last_error) == (1, failures.UNACKNOWLEDGED)


async def test_all_messages_waiting_for_an_unreadable_file_record_the_error(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(uploads, "FIRST_RETRY_SECONDS", 0.01)
    monkeypatch.setattr(uploads, "LAST_RETRY_SECONDS", 0.02)
    world.add_phones(SLOW, FINE)
    running = await world.start()
    await world.connected(running)
    await running.client.check(SLOW, FINE)
    medium = await media_scene.upload(world)

    is_broken, open_file = True, DirectoryStore.open_file

    def refuse(files: DirectoryStore, name: str) -> BinaryIO:
        if is_broken:
            raise OSError(errno.EIO, "a bad block", name)
        return open_file(files, name)

    monkeypatch.setattr(DirectoryStore, "open_file", refuse)
    for number in (SLOW, FINE):
        await media_scene.send_image(running, number, medium.id)
    found = await until(world.database, lambda jobs: all(jobs[n].attempts > 1 for n in (SLOW, FINE)))
    is_broken = False
    assert {job.last_error for job in found.values()} == {failures.FILE_UNREADABLE}
    await world.sink.signals.until(lambda: len(world.sink.taken()) == 2)
    await world.until_jobs(0)
    assert await rows(world.database) == 0
    assert running.shard.media.preparation._listeners == {}


async def test_a_new_owner_continues_the_attempt_count_and_deletes_it_once_sent(world: World) -> None:
    world.add_phones(SLOW)
    first = await world.start()
    await world.connected(first)
    await first.client.check(SLOW)
    world.network.policy = lambda send: frames.MAILBOX_FULL
    await first.client.send(SLOW, "x")
    before = (await until(world.database, lambda jobs: jobs[SLOW].attempts > 2))[SLOW].attempts
    await first.killed()
    world.network.policy = lambda send: HOLD
    second = await world.start(node="second")
    assert len(second.shard.sending.failures) == 1
    world.network.policy = lambda send: frames.MAILBOX_FULL
    world.network.drop()
    assert (await until(world.database, lambda jobs: jobs[SLOW].attempts > before + 1))[SLOW].attempts > before + 1
    world.network.policy = lambda send: None
    await world.sink.signals.until(lambda: len(world.sink.taken()) == 1)
    await world.until_jobs(0)
    assert await rows(world.database) == 0


async def test_error_rows_are_written_in_batches_of_limited_size(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(failures, "MAX_ROWS", 3)
    numbers = [f"1555011{n:04}" for n in range(8)]
    world.add_phones(*numbers)
    running = await world.start()
    await world.connected(running)
    await running.client.check(*numbers)
    written: list[int] = []
    put = running.shard.context.journal.put
    monkeypatch.setattr(
        running.shard.context.journal,
        "put",
        lambda change, **more: (
            written.append(len(change.failures.saved) if change.failures else 0) or put(change, **more)
        ),
    )
    world.network.policy = lambda send: frames.MAILBOX_FULL if send.to != numbers[0] else HOLD
    await asyncio.gather(*(running.client.send(number, "x") for number in numbers))
    await until(world.database, lambda jobs: sum(bool(job.attempts) for job in jobs.values()) == 7)
    assert max(written) == 3


def test_recorded_errors_use_fixed_texts_without_numbers_or_secrets() -> None:
    said = [f"{FINE} is not logged in", "Bundles(n=1, bundles=[secret])", "https://user:pass@host"]
    kinds = (NetworkUnavailable, NetworkTimeout, NetworkUnreached)
    texts = {failures.no_response(kind(text)) for kind in kinds for text in said}
    assert len(texts) == len(kinds)
    texts |= {failures.OVERLOADED, failures.HELD_BACK, failures.STALE_GROUP, failures.UNACKNOWLEDGED}
    assert all(len(text) <= job_errors.MAX_ERROR for text in texts)
    assert not any(secret in text for text in texts for secret in (FINE, BUSINESS, "secret", "pass", "host"))


async def test_nothing_is_recorded_after_close(world: World) -> None:
    running = await world.start()
    noted = running.shard.sending.failures
    noted.note(["a"], failures.OVERLOADED)
    await soon(lambda: len(noted) == 1)
    noted.close()
    noted.note(["b"], failures.OVERLOADED)
    assert len(noted) == 1
