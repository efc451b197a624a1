"""Numbers that send through the Cloud API: the switch excludes unsent messages and ends the owners' leases."""

from __future__ import annotations

import asyncio

import pytest

from tests.conftest import DatabaseFactory
from tidings.storage.business import certificates, changes, jobs, numbers, shards, upstream_ids, upstreams
from tidings.storage.business.jobs import Job, JobForm
from tidings.storage.business.numbers import BusinessNumber
from tidings.storage.business.shards import Lease, LeaseLost
from tidings.storage.business.upstream_ids import UpstreamId
from tidings.storage.business.upstreams import JobsPending, Upstream
from tidings.storage.database import Connection, Database

NUMBER = "15550000000"
FIRST = BusinessNumber(NUMBER, 0, numbers.ACTIVE, 0)
UPSTREAM = Upstream(NUMBER, "https://graph.example/v25.0", "106540352242922", "102290129340398", 80, "", 1)
JOB = Job("a", 0, NUMBER, "15550110001", JobForm.NEW, "", b"\0sealed", 1_700_000_000_000)


async def owned(database: Database) -> Lease:
    """Create the number's shard and claim it."""

    async def work(connection: Connection) -> Lease | None:
        await numbers.add_first(connection, NUMBER)
        await shards.create_shards(connection, 1)
        return await shards.claim(connection, 0, owner="me", address="here", heartbeat_timeout=30.0)

    lease = await database.commit(work)
    assert lease is not None
    return lease


async def attach(database: Database, upstream: Upstream = UPSTREAM, sealed: bytes = b"sealed") -> None:
    await database.commit(lambda connection: upstreams.attach(connection, FIRST, upstream, sealed))


async def test_a_switch_ends_the_lease_and_a_replacement_of_credentials_does_not(
    database_factory: DatabaseFactory,
) -> None:
    database = await database_factory("business")
    lease = await owned(database)
    await attach(database)
    with pytest.raises(LeaseLost):
        await database.commit(lambda connection: shards.renew(connection, lease))
    lease = await owned(database)
    await attach(database, sealed=b"other")
    await database.commit(lambda connection: shards.renew(connection, lease))
    async with database.reading() as connection:
        assert await upstreams.find(connection, NUMBER) == UPSTREAM
        assert await upstreams.list_all(connection) == [UPSTREAM]
        kind = certificates.CLOUD_UPSTREAM
        assert await certificates.find_certificate(connection, NUMBER, kind) == b"other"
        assert (await changes.list_versions(connection))[changes.UPSTREAMS] == 2
    assert await database.commit(lambda connection: upstreams.detach(connection, FIRST))
    with pytest.raises(LeaseLost):
        await database.commit(lambda connection: shards.renew(connection, lease))
    async with database.reading() as connection:
        assert await upstreams.find(connection, NUMBER) is None
        assert await certificates.find_certificate(connection, NUMBER, kind) is None
    assert not await database.commit(lambda connection: upstreams.detach(connection, FIRST))


async def test_a_switch_is_refused_while_messages_are_unsent(database_factory: DatabaseFactory) -> None:
    database = await database_factory("business")
    lease = await owned(database)
    await database.commit(shards.fenced(lease, lambda connection: jobs.enqueue(connection, [JOB])))
    with pytest.raises(JobsPending) as raised:
        await attach(database)
    assert raised.value.count == 1
    await database.commit(lambda connection: shards.renew(connection, lease))
    async with database.reading() as connection:
        assert await upstreams.find(connection, NUMBER) is None


async def test_no_message_is_accepted_between_the_check_and_the_switch(database_factory: DatabaseFactory) -> None:
    database = await database_factory("business")
    for _ in range(5):
        lease = await owned(database)
        accepting = database.commit(shards.fenced(lease, lambda connection: jobs.enqueue(connection, [JOB])))
        accepted, switched = await asyncio.gather(accepting, attach(database), return_exceptions=True)
        async with database.reading() as connection:
            queued = await jobs.count(connection)
            is_switched = await upstreams.find(connection, NUMBER) is not None
        if isinstance(accepted, LeaseLost):
            assert (queued, is_switched, switched) == (0, True, None)
        else:
            assert (queued, is_switched) == (1, False)
            assert isinstance(switched, JobsPending)
        await database.commit(lambda connection: jobs.finish(connection, ["a"]))
        await database.commit(lambda connection: upstreams.detach(connection, FIRST))


async def test_a_fault_is_announced_once(database_factory: DatabaseFactory) -> None:
    database = await database_factory("business")
    await owned(database)
    await attach(database)
    for fault in ("token", "token", "x" * 300, ""):
        await database.commit(lambda connection, fault=fault: upstreams.set_fault(connection, NUMBER, fault))
        async with database.reading() as connection:
            found = await upstreams.find(connection, NUMBER)
        assert found is not None
        assert found.fault == fault[:255]
    async with database.reading() as connection:
        assert (await changes.list_versions(connection))[changes.UPSTREAMS] == 4


async def test_ids_are_found_in_both_directions_and_kept_apart_by_number(database_factory: DatabaseFactory) -> None:
    database = await database_factory("business")
    rows = [UpstreamId(NUMBER, "a", "wamid.A/+=", 1), UpstreamId("15550000001", "a", "wamid.B", 2)]
    async with database.transaction() as connection:
        for _ in range(2):
            await upstream_ids.add(connection, rows)
        await upstream_ids.add(connection, [UpstreamId(NUMBER, "a", "wamid.other", 3)])
    async with database.reading() as connection:
        assert await upstream_ids.list_by_id(connection, NUMBER, ["a", "b"]) == rows[:1]
        assert await upstream_ids.list_by_wamid(connection, NUMBER, ["wamid.A/+=", "wamid.B"]) == rows[:1]
        # Not another case: ids are compared byte by byte.
        assert await upstream_ids.list_by_wamid(connection, NUMBER, ["WAMID.A/+="]) == []
    assert await database.commit(lambda c: upstream_ids.delete_before(c, 2, 10)) == 1
    assert await database.commit(lambda c: upstream_ids.delete_before(c, 100, 10)) == 1
