"""Two owners of a shard on two nodes of a cluster: the former owner writes nothing, and the new one misses
nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest
import sqlalchemy as sa

from benchmarks.fence import read_fence
from coreapp.journal.change import Change
from coreapp.journal.journal import Journal
from harness.galera import Galera
from tests.coreapp.journal.test_journal import ACCOUNT, a_job, a_message, as_they_are
from tests.galera.conftest import Tables, is_busy, keep_busy, standing_still
from tidings.storage import outages
from tidings.storage.business import jobs, shards
from tidings.storage.business.shards import Lease
from tidings.storage.database import Connection, Database

pytestmark = pytest.mark.whole_system


async def claim(database: Database, owner: str, heartbeat_timeout: float = -1.0) -> Lease:
    async def work(connection: Connection) -> Lease | None:
        await shards.create_shards(connection, 1)
        return await shards.claim(connection, 0, owner=owner, address="", heartbeat_timeout=heartbeat_timeout)

    lease = await database.commit(work)
    assert lease is not None
    return lease


async def job_ids(database: Database) -> set[str]:
    async with database.reading() as connection:
        return {job.id for job in await jobs.list_jobs(connection, 0)}


async def write_late(
    fence: Callable[[Connection, Lease], Awaitable[None]], first: Database, second: Database, cluster: Galera
) -> bool:
    """Commit as an owner at a node that does not know yet of a takeover at another node, which found no job.

    Returns whether the commit was accepted.
    """
    old = await claim(first, "first")
    refusal = None
    try:
        async with first.transaction() as connection:
            await fence(connection, old)
            # A pipelined statement, here the fence, is sent with the next one that returns a result.
            await connection.execute(sa.text("SELECT 1"))
            await asyncio.to_thread(keep_busy, cluster.nodes[0], writing=cluster.nodes[1])
            await claim(second, "second")
            assert await job_ids(second) == set()
            await jobs.enqueue(connection, [a_job("late")])
            assert await asyncio.to_thread(is_busy, cluster.nodes[0]), "it has heard of the takeover"
    except sa.exc.DBAPIError as error:
        refusal = error
    if refusal is not None:
        assert outages.is_conflict(refusal), refusal
        assert not outages.may_be_committed(refusal)
    return refusal is None


@pytest.mark.unportable
async def test_a_read_only_fence_lets_a_former_owner_write_on_a_lagging_node(cluster: Galera, tables: Tables) -> None:
    """The reason why the fence writes: the new owner does not know of this job."""
    first, second = await tables(*cluster.nodes[:2])
    assert await write_late(read_fence, first, second, cluster)
    assert await job_ids(second) == {"late"}


async def test_a_former_owners_write_is_refused_on_a_lagging_node(cluster: Galera, tables: Tables) -> None:
    first, second = await tables(*cluster.nodes[:2])
    assert not await write_late(shards.fence, first, second, cluster)
    assert await job_ids(second) == set()


async def test_a_former_owner_whose_commit_is_refused_loses_its_lease(cluster: Galera, tables: Tables) -> None:
    """A deadlock at its COMMIT is retried, and then another process holds the lease. No outcome is unknown."""
    first, second = await tables(*cluster.nodes[:2])
    journal = Journal(first, await claim(first, "first"), last_seq=0, seal=as_they_are)
    await journal.write(Change(ACCOUNT, new_messages=[a_message("m1")], enqueued_jobs=[a_job("m1")]))
    await asyncio.to_thread(keep_busy, cluster.nodes[0], writing=cluster.nodes[1])
    await claim(second, "second")
    with pytest.raises(shards.LeaseLost):
        await journal.write(Change(ACCOUNT, new_messages=[a_message("m2")], enqueued_jobs=[a_job("m2")]))
    await journal.close()
    assert await job_ids(second) == {"m1"}


async def test_a_new_owner_reads_all_commits_made_on_other_nodes(cluster: Galera, tables: Tables) -> None:
    """The new owner may use a third node, which has not applied the commit yet."""
    first, second, third = await tables(*cluster.nodes)
    old = await claim(first, "first")
    journal = Journal(first, old, last_seq=0, seal=as_they_are)
    with standing_still(cluster.nodes[2]):
        await journal.write(Change(ACCOUNT, new_messages=[a_message("m1")], enqueued_jobs=[a_job("m1")]))
        await journal.close()
        await claim(second, "second")
        async with third.engine.connect() as connection:
            await connection.exec_driver_sql("SET SESSION wsrep_sync_wait = 0")
            assert await jobs.list_jobs(connection, 0) == [], "it has nothing to wait for"
            await connection.invalidate()
        reading = asyncio.create_task(job_ids(third))
        await asyncio.wait([reading], timeout=0.3)
        assert not reading.done()
    assert await reading == {"m1"}


async def test_an_owner_on_a_lagging_node_deletes_what_it_committed_elsewhere(cluster: Galera, tables: Tables) -> None:
    """The owner moves to a node that lags, as after a node's death. A DELETE there may find nothing yet, and must not
    count as done."""
    first, second = await tables(*cluster.nodes[:2])
    lease = await claim(first, "owner")
    before = Journal(first, lease, last_seq=0, seal=as_they_are)
    await asyncio.to_thread(keep_busy, cluster.nodes[1], writing=cluster.nodes[0])
    await before.write(Change(ACCOUNT, new_messages=[a_message("m1")], enqueued_jobs=[a_job("m1")]))
    after = Journal(second, lease, last_seq=0, seal=as_they_are)
    await after.write(Change(ACCOUNT, finished_jobs=["m1"]))
    assert await job_ids(first) == await job_ids(second) == set()
    await before.close()
    await after.close()


@pytest.mark.parametrize("sync_wait", [0, 1])
async def test_the_fence_makes_deletes_complete_without_wsrep_sync_wait(
    cluster: Galera, tables: Tables, sync_wait: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tidings.storage.engine._WSREP_SYNC_WAIT", sync_wait)
    await test_an_owner_on_a_lagging_node_deletes_what_it_committed_elsewhere(cluster, tables)
