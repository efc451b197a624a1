"""Job queue as a log: unfinished jobs, in the order of acceptance."""

from __future__ import annotations

import dataclasses

from tests.conftest import DatabaseFactory
from tidings.storage.business import jobs
from tidings.storage.business.jobs import Job, JobForm


def job(id: str, shard: int = 0) -> Job:
    return Job(id, shard, "15550000000", "15550110001", JobForm.NEW, "", b"\0sealed", 1_700_000_000_000)


async def test_jobs_of_a_shard_are_listed_in_the_byte_order_of_their_ids(database_factory: DatabaseFactory) -> None:
    database = await database_factory("business")
    async with database.transaction() as connection:
        # Upper case before lower case, digits before both: the order of bytes.
        await jobs.enqueue(connection, [job("b"), job("B"), job("1"), job("a"), job("other", 1)])
        await jobs.enqueue(connection, [])
        assert [found.id for found in await jobs.list_jobs(connection, 0)] == ["1", "B", "a", "b"]
        assert await jobs.count(connection) == 5


async def test_a_job_is_encrypted_in_place_and_finished_once(database_factory: DatabaseFactory) -> None:
    database = await database_factory("business")
    encrypted = dataclasses.replace(job("a"), state=JobForm.ENCRYPTED, kind="prekey", body=bytes(range(256)))
    async with database.transaction() as connection:
        await jobs.enqueue(connection, [job("a"), job("b")])
        for _ in range(2):
            await jobs.enqueue(connection, [encrypted])
        assert await jobs.list_jobs(connection, 0) == [encrypted, job("b")]
        for _ in range(2):
            await jobs.finish(connection, ["a", "x"])
        assert await jobs.list_jobs(connection, 0) == [job("b")]


async def test_tens_of_thousands_of_jobs_are_finished_at_once(database_factory: DatabaseFactory) -> None:
    database = await database_factory("business")
    ids = [f"j{n:05}" for n in range(33_000)]
    async with database.transaction() as connection:
        await jobs.enqueue(connection, [job(id) for id in ids])
        await jobs.finish(connection, ids[:-1])
        assert [found.id for found in await jobs.list_jobs(connection, 0)] == ["j32999"]


async def test_more_jobs_than_a_page_are_listed_in_the_order_of_acceptance(database_factory: DatabaseFactory) -> None:
    business = await database_factory("business")
    # Acceptance times that are in another order than the ids, and some equal ones.
    rows = [Job(f"j{n:03}", 0, "1", "2", 0, "", b"", (n * 389) % 300) for n in range(600)]
    async with business.transaction() as connection:
        await jobs.enqueue(connection, [*rows, Job("j3000", 1, "1", "2", 0, "", b"", 3)])
    async with business.reading() as connection:
        listed = await jobs.list_jobs(connection, 0)
    assert [job.id for job in listed] == [job.id for job in sorted(rows, key=lambda job: (job.created_at, job.id))]
