"""Errors of jobs: one row for a job that was delayed, as long as the job exists, and none for any other."""

from __future__ import annotations

import dataclasses

import pytest

from tests.conftest import DatabaseFactory
from tidings.storage.business import job_errors, jobs, queue_views
from tidings.storage.business.job_errors import JobError, JobErrorChanges
from tidings.storage.business.jobs import Job, JobForm
from tidings.storage.business.queue_views import RowFilter
from tidings.storage.database import Connection

LOST = JobError("a", 1, "the network is overloaded", 1000)


async def fill(connection: Connection) -> None:
    rows = [("a", 0), ("b", 0), ("c", 3)]
    await jobs.enqueue(
        connection, [Job(id, shard, "15550000000", "491700000001", JobForm.NEW, "", b"sealed", 1) for id, shard in rows]
    )


async def test_the_last_error_of_a_job_is_kept_and_deleted_with_its_job(
    database_factory: DatabaseFactory,
) -> None:
    database = await database_factory("business")
    other = JobError("b", 1, "é" * 255, 3000)
    async with database.transaction() as connection:
        await fill(connection)
        # Many changes are merged into one write, which keeps the later row of a job.
        later = dataclasses.replace(LOST, attempts=3, tried_at=2000)
        await job_errors.execute(connection, [JobErrorChanges([LOST, other]), JobErrorChanges([later])])
        assert sorted(await job_errors.list_of_shard(connection, 0), key=lambda row: row.id) == [later, other]
        await job_errors.execute(connection, [JobErrorChanges([dataclasses.replace(later, attempts=4)])])
        assert [row.attempts for row in await job_errors.list_of_shard(connection, 0) if row.id == "a"] == [4]
        await job_errors.execute(connection, [JobErrorChanges([LOST]), JobErrorChanges(deleted=["a", "unknown"])])
        assert await job_errors.list_of_shard(connection, 0) == [other]
        await job_errors.execute(connection, [])
        assert await job_errors.list_of_shard(connection, 3) == []


async def test_jobs_are_listed_with_their_last_error_if_any(
    database_factory: DatabaseFactory,
) -> None:
    database = await database_factory("business")
    async with database.transaction() as connection:
        await fill(connection)
        await job_errors.execute(connection, [JobErrorChanges([dataclasses.replace(LOST, attempts=7)])])
        listed = await queue_views.list_jobs(connection, RowFilter(), limit=2)
        assert [(job.id, job.attempts, job.last_error, job.tried_at) for job in listed] == [
            ("a", 7, "the network is overloaded", 1000),
            ("b", 0, "", 0),
        ]
        assert [job.id for job in await queue_views.list_jobs(connection, RowFilter(), after="b")] == ["c"]


@pytest.mark.parametrize("limit", [1, 10])
async def test_old_error_rows_without_a_job_are_deleted(database_factory: DatabaseFactory, limit: int) -> None:
    database = await database_factory("business")
    strays = [JobError(f"gone{n}", 1, "lost", n) for n in range(3)]
    async with database.transaction() as connection:
        await fill(connection)
        await job_errors.execute(connection, [JobErrorChanges([LOST, *strays])])
        deleted = [await job_errors.delete_strays(connection, 2, limit) for _ in range(3)]
        assert sum(deleted) == 2
        assert max(deleted) <= limit
        assert await job_errors.delete_strays(connection, 5000, limit) == 1
        assert await job_errors.list_of_shard(connection, 0) == [LOST]
