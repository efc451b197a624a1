"""The one writer: batches, their order and their merging, the fence, and commits whose outcome is unknown."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import time
from collections.abc import AsyncIterator, Sequence
from typing import Any

import pymysql
import pytest
import sqlalchemy as sa
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy.ext.asyncio import AsyncConnection

from coreapp.crash_suspects import suspects_of
from coreapp.errors import ChangeRefused, OutcomeUnknown
from coreapp.journal.change import Change
from coreapp.journal.journal import Journal
from coreapp.journal.session_rows import UsedPreKey
from harness import metrics
from tests.conftest import DatabaseFactory
from tests.database_triggers import refused_rows
from tidings.storage import outages
from tidings.storage.business import (
    accounts,
    callbacks,
    cloud_limits,
    cloud_users,
    contacts,
    identities,
    jobs,
    messages,
    sessions,
    shards,
    standins,
)
from tidings.storage.business.cloud_users import CloudUser
from tidings.storage.business.messages import Status
from tidings.storage.business.quarantine import Item
from tidings.storage.business.standins import StandIn
from tidings.storage.database import Database

ACCOUNT = "15550000000"
TABLES = (messages.table, jobs.table, sessions.table, contacts.table, callbacks.table, identities.table)


async def a_lease(database: Database, owner: str = "me") -> shards.Lease:
    async with database.transaction() as connection:
        await shards.create_shards(connection, 1)
        lease = await shards.claim(
            connection, 0, owner=owner, address="a:1", heartbeat_timeout=0.0 if owner != "me" else 30
        )
    assert lease is not None
    return lease


def a_message(id: str, status: Status = Status.ACCEPTED) -> messages.MessageRow:
    return messages.MessageRow(id, ACCOUNT, 0, "15550110001", "text", status, 1, "")


def a_job(id: str, state: int = 0, body: bytes = b"new") -> jobs.Job:
    return jobs.Job(id, 0, ACCOUNT, "15550110001", state, "", body, 1)


def a_callback(subject: str, **more: Any) -> callbacks.Callback:
    return callbacks.Callback(0, 0, ACCOUNT, subject, "status_change", b"{}", 1, **more)


def as_they_are(found: Sequence[callbacks.Callback]) -> list[bytes]:
    return [callback.body for callback in found]


async def dump(database: Database) -> dict[str, list[tuple[Any, ...]]]:
    async with database.reading() as connection:
        return {
            table.name: sorted(tuple(row) for row in await connection.execute(sa.select(table))) for table in TABLES
        }


def test_a_change_outside_a_journal_seals_no_bodies() -> None:
    with pytest.raises(RuntimeError, match="not put into a journal"):
        Change(ACCOUNT).seal(())


async def test_limits_are_announced_only_with_their_callbacks(database_factory: DatabaseFactory) -> None:
    database = await database_factory("business")
    async with database.transaction() as connection:
        await cloud_limits.change(connection, ACCOUNT, {"tier": "TIER_250"})
    journal = Journal(database, await a_lease(database), last_seq=0, seal=as_they_are)
    announced = Change(
        ACCOUNT,
        new_callbacks=[a_callback("limits")],
        announced_limits=[cloud_limits.AnnouncedLimits(ACCOUNT, "TIER_250", "STANDARD", 1)],
    )
    async with refused_rows(database, "callbacks", "NEW.subject = 'limits'"):
        with pytest.raises(ChangeRefused):
            await journal.write(announced)
    await journal.close()
    async with database.reading() as connection:
        assert (await cloud_limits.find(connection, ACCOUNT)).announced_tier == ""
    again = Journal(database, journal.lease, last_seq=0, seal=as_they_are)
    await again.write(announced)
    await again.close()
    async with database.reading() as connection:
        assert (await cloud_limits.find(connection, ACCOUNT)).announced_tier == "TIER_250"


async def test_users_of_a_batch_are_written_once_and_in_order(
    database_factory: DatabaseFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    written: list[Sequence[CloudUser]] = []

    async def noted(connection: AsyncConnection, users: Sequence[CloudUser]) -> None:
        written.append(users)

    monkeypatch.setattr(cloud_users, "add", noted)
    database = await database_factory("business")
    journal = Journal(database, await a_lease(database), last_seq=0, seal=as_they_are)
    users = [CloudUser(account, user_id, "15550110001") for account, user_id in (("2", "A"), ("1", "B"), ("1", "A"))]
    await journal.write(Change(ACCOUNT, new_callbacks=[a_callback(str(n), users=users) for n in range(2)]))
    await journal.close()
    assert [[(user.account, user.user_id) for user in users] for users in written] == [
        [("1", "A"), ("1", "B"), ("2", "A")]
    ]


class Breaking(Database):
    """Database that breaks the connection after its next commits, before their results arrive."""

    breaks = 0  # number of commits that are still to break

    @contextlib.asynccontextmanager
    async def transaction(self, **limits: Any) -> AsyncIterator[AsyncConnection]:
        async with super().transaction(**limits) as connection:
            yield connection
        if self.breaks:
            self.breaks -= 1
            await self.after_commit()
            error = sa.exc.OperationalError("COMMIT", {}, pymysql.err.OperationalError(2013, "Lost connection"))
            outages.note_commit(error)
            raise error

    async def after_commit(self) -> None:
        pass


async def test_a_commit_of_unknown_outcome_is_repeated_without_effect(
    database_factory: DatabaseFactory,
) -> None:
    database = Breaking((await database_factory("business")).settings, "business")
    told: list[int] = []
    journal = Journal(database, await a_lease(database), last_seq=0, seal=as_they_are)
    journal.on_callbacks(lambda rows: told.extend(row.seq for row in rows))
    old = [a_callback(f"old-{n}") for n in range(3)]
    await journal.write(
        Change(
            ACCOUNT,
            new_messages=[a_message("m0"), a_message("m1")],
            enqueued_jobs=[a_job("m0"), a_job("m1")],
            whole_sessions=[sessions.SealedSession(ACCOUNT, "1", b"s0", b"r0")],
            new_callbacks=old,
        )
    )
    old[1].attempt, old[1].due_at, old[1].last_error = 1, 99, "HTTP 500"
    old[2].attempt, old[2].last_error = 7, "HTTP 404"
    change = Change(
        ACCOUNT,
        new_messages=[a_message("m2")],
        enqueued_jobs=[a_job("m2"), a_job("m1", 1, b"cipher")],
        finished_jobs=["m0"],
        sending_halves=[sessions.SealedSendingHalf(ACCOUNT, "1", b"s1")],
        whole_sessions=[sessions.SealedSession(ACCOUNT, "2", b"s", b"r")],
        dropped_sessions=["2"],
        statuses={"m0": Status.SENT},
        checked_contacts=[contacts.StoredContact(ACCOUNT, "1", True, 5)],
        new_callbacks=[a_callback("m0")],
        finished_callbacks=[old[0].seq],
        failed_callbacks=[old[1]],
        dead_callbacks=[old[2]],
    )
    database.breaks = 2
    await journal.write(change)
    assert database.breaks == 0
    found = await dump(database)
    assert [row[5] for row in found["messages"]] == [Status.SENT, Status.ACCEPTED, Status.ACCEPTED]
    assert [(row[0], row[4], row[6]) for row in found["jobs"]] == [("m1", 1, b"cipher"), ("m2", 0, b"new")]
    assert [tuple(row[1:4]) for row in found["sessions"]] == [("1", b"s1", b"r0"), ("2", b"s", b"r")]
    by_subject = {row[3]: row for row in found["callbacks"]}
    assert set(by_subject) == {"old-1", "old-2", "m0"}
    assert by_subject["old-1"][6:9] == (callbacks.CallbackState.PENDING, 1, 99)
    assert by_subject["old-2"][6:8] == (callbacks.CallbackState.DEAD, 7)
    assert len(told) == len(set(told)) == 4
    await journal.close()
    await database.close()


async def test_nothing_is_written_after_the_lease_is_lost(database_factory: DatabaseFactory) -> None:
    database = await database_factory("business")
    journal = Journal(database, await a_lease(database), last_seq=0, seal=as_they_are)
    await journal.write(Change(ACCOUNT, new_messages=[a_message("m0")]))
    async with database.transaction() as connection:
        await connection.execute(shards.table.update().values(heartbeat_at=0))
    mine = await a_lease(database, "other")
    before = await dump(database)
    writes = [journal.put(Change(ACCOUNT, new_messages=[a_message(f"m{n}")])) for n in range(1, 4)]
    for write in writes:
        with pytest.raises(shards.LeaseLost):
            await write
    assert isinstance(journal.broken.exception(), shards.LeaseLost)
    # Even if the lease came back: the state in memory can no longer be trusted.
    async with database.transaction() as connection:
        await shards.release(connection, mine)
        await connection.execute(shards.table.update().values(epoch=1))
    with pytest.raises(shards.LeaseLost):
        await journal.write(Change(ACCOUNT, new_messages=[a_message("m9")]))
    assert await dump(database) == before
    await journal.close()


async def test_a_lease_lost_after_a_commit_of_unknown_outcome_leaves_it_unknown(
    database_factory: DatabaseFactory,
) -> None:
    class Taken(Breaking):
        """Database in which another process takes the shard before the connection breaks."""

        async def after_commit(self) -> None:
            async with self.transaction() as connection:
                await connection.execute(shards.table.update().values(heartbeat_at=0))
            await a_lease(self, "other")

    database = Taken((await database_factory("business")).settings, "business")
    journal = Journal(database, await a_lease(database), last_seq=0, seal=as_they_are)
    database.breaks = 1
    with pytest.raises(OutcomeUnknown):
        await journal.write(Change(ACCOUNT, new_messages=[a_message("m1")]))
    assert isinstance(journal.broken.exception(), shards.LeaseLost)
    assert [row[0] for row in (await dump(database))["messages"]] == ["m1"]
    await journal.close()
    await database.close()


async def test_changes_submitted_during_a_commit_share_the_next_one(database_factory: DatabaseFactory) -> None:
    database = await database_factory("business")
    order: list[str] = []
    journal = Journal(database, await a_lease(database), last_seq=0, seal=as_they_are)
    journal.on_callbacks(lambda rows: order.extend(row.subject for row in rows))
    commits = metrics.value("tidings_db_commits_total", family="business")
    futures = [journal.put(Change(ACCOUNT, new_callbacks=[a_callback(f"c{n:03}")])) for n in range(300)]
    await asyncio.gather(*futures)
    later = [journal.put(Change(ACCOUNT, new_callbacks=[a_callback(f"c{n:03}")])) for n in range(300, 400)]
    await asyncio.gather(*later)
    assert order == [f"c{n:03}" for n in range(400)]
    assert metrics.value("tidings_db_commits_total", family="business") - commits == 2
    async with database.reading() as connection:
        rows = await callbacks.list_pending(connection, 0, after=0, limit=1000)
    assert [row.subject for row in rows] == order
    await journal.close()


async def test_sequence_numbers_increase_across_restarts_and_are_unique_per_shard(
    database_factory: DatabaseFactory,
) -> None:
    database = await database_factory("business")
    lease = await a_lease(database)
    seqs: list[int] = []
    now_ns = time.time_ns()

    async def write(shard: int, last: int) -> None:
        mine = shards.Lease(shard, lease.owner, lease.epoch)
        journal = Journal(database, mine, last_seq=last, seal=as_they_are, now_ns=lambda: now_ns)
        journal.on_callbacks(lambda rows: seqs.extend(row.seq for row in rows))
        await journal.write(Change(ACCOUNT, new_callbacks=[a_callback(f"{n}") for n in range(50)]))
        await journal.close()

    await write(0, 0)
    now_ns = 1_000_000_000
    async with database.transaction() as connection:
        highest = await callbacks.highest_seq(connection)
        await connection.execute(
            shards.table.insert(),
            [{"shard": 1, "owner": "me", "address": "", "epoch": lease.epoch, "heartbeat_at": 0}],
        )
    assert highest == seqs[-1]
    await write(0, highest)
    assert seqs == sorted(set(seqs))
    first_shard, seqs[:] = set(seqs), []
    await write(1, highest)
    assert seqs == sorted(set(seqs))
    assert not first_shard & set(seqs)


def job_to(peer: str, job_id: str) -> jobs.Job:
    return jobs.Job(job_id, 0, ACCOUNT, peer, 0, "", b"new", 1)


@pytest.fixture
async def refusing(database_factory: DatabaseFactory) -> AsyncIterator[Database]:
    """Database that refuses the job "bad" at every attempt."""
    database = await database_factory("business")
    async with refused_rows(database, "jobs", "NEW.id = 'bad'"):
        yield database


async def test_of_a_refused_batch_only_the_refused_change_and_what_depends_on_it_fails(
    refusing: Database,
) -> None:
    journal = Journal(refusing, await a_lease(refusing), last_seq=0, seal=as_they_are)
    told: list[str] = []
    journal.on_callbacks(lambda new: told.extend(callback.subject for callback in new))
    changes = [
        Change(ACCOUNT, enqueued_jobs=[job_to("1", "a")], new_callbacks=[a_callback("a")]),
        Change(ACCOUNT, enqueued_jobs=[job_to("2", "bad")], made_from=lambda: [Item("job", "bad")]),
        Change(ACCOUNT, enqueued_jobs=[job_to("3", "c")], new_callbacks=[a_callback("c")]),
        Change(ACCOUNT, enqueued_jobs=[job_to("2", "d")], made_from=lambda: [Item("job", "d")]),
        Change(ACCOUNT, finished_jobs=["bad"]),
        Change(ACCOUNT, finished_jobs=["a"]),
    ]
    results = await asyncio.gather(*map(journal.put, changes), return_exceptions=True)
    assert [type(result) for result in results] == [
        type(None),
        ChangeRefused,
        type(None),
        ChangeRefused,
        ChangeRefused,
        type(None),
    ]
    assert isinstance(results[1], ChangeRefused)
    assert isinstance(results[3], ChangeRefused)
    assert suspects_of(results[1]) == (Item("job", "bad"),)
    assert not suspects_of(results[3])
    found = await dump(refusing)
    assert [row[0] for row in found["jobs"]] == ["c"]
    assert told == ["a", "c"]
    # Memory is ahead of the disk by the refused change.
    with pytest.raises(ChangeRefused):
        await journal.write(Change(ACCOUNT, enqueued_jobs=[job_to("4", "e")]))
    with pytest.raises(ChangeRefused):
        journal.broken.result()
    await journal.close()


async def test_a_change_that_is_refused_alone_carries_what_it_was_made_from(
    refusing: Database,
) -> None:
    journal = Journal(refusing, await a_lease(refusing), last_seq=0, seal=as_they_are)
    with pytest.raises(ChangeRefused) as refused:
        await journal.write(Change(ACCOUNT, enqueued_jobs=[job_to("2", "bad")], made_from=lambda: [Item("job", "bad")]))
    assert suspects_of(refused.value) == (Item("job", "bad"),)
    await journal.close()


async def test_while_a_refused_batch_is_committed_one_by_one_a_lost_lease_ends_it(
    refusing: Database,
) -> None:
    journal = Journal(refusing, await a_lease(refusing), last_seq=0, seal=as_they_are)

    def lose(new: Sequence[callbacks.Callback]) -> None:
        journal.lease = dataclasses.replace(journal.lease, epoch=99)

    journal.on_callbacks(lose)
    results = await asyncio.gather(
        *(
            journal.put(change)
            for change in (
                Change(ACCOUNT, enqueued_jobs=[job_to("1", "a")], new_callbacks=[a_callback("a")]),
                Change(ACCOUNT, enqueued_jobs=[job_to("2", "bad")]),
                Change(ACCOUNT, enqueued_jobs=[job_to("3", "c")]),
            )
        ),
        return_exceptions=True,
    )
    # With pipelined statements, the refused row is reported before the lost lease.
    assert results[0] is None
    assert isinstance(results[1], shards.LeaseLost | ChangeRefused)
    assert isinstance(results[2], shards.LeaseLost)
    await journal.close()


PEERS = st.sampled_from(["1", "2"])
IDS = st.sampled_from(["a", "b", "c"])
STATUSES = st.sampled_from([Status.SENT, Status.DELIVERED, Status.READ, Status.FAILED])
BLOBS = st.binary(min_size=1, max_size=2)
HASHES = st.sampled_from([b"11111111", b"22222222"])
STEPS = st.one_of(
    st.builds(lambda peer, s, r: ("whole", peer, s, r), PEERS, BLOBS, BLOBS),
    st.builds(lambda peer, s: ("half", peer, s), PEERS, BLOBS),
    st.builds(lambda peer: ("drop", peer), PEERS),
    st.builds(lambda id, status: ("status", id, status), IDS, STATUSES),
    st.builds(lambda id, body: ("job", id, body), IDS, BLOBS),
    st.builds(lambda peer, known: ("contact", peer, known), PEERS, st.booleans()),
    st.builds(lambda peer, digest, taken: ("learn", peer, digest, taken), PEERS, HASHES, st.booleans()),
    st.builds(lambda peer, digest: ("acknowledge", peer, digest), PEERS, HASHES),
    st.just(("acknowledge all",)),
)


def as_change(account: str, step: tuple[Any, ...]) -> Change:
    match step:
        case ("whole", peer, sending, receiving):
            return Change(account, whole_sessions=[sessions.SealedSession(account, peer, sending, receiving)])
        case ("half", peer, sending):
            return Change(account, sending_halves=[sessions.SealedSendingHalf(account, peer, sending)])
        case ("drop", peer):
            return Change(account, dropped_sessions=[peer])
        case ("learn", peer, digest, taken):
            return Change(account, found_identities=[identities.StoredIdentity(account, peer, digest, 1, taken)])
        case ("acknowledge", peer, digest):
            return Change(account, acknowledged_identities=[(peer, digest)])
        case ("acknowledge all",):
            return Change(account, acknowledges_all=lambda peer: True)
        case ("status", id, status):
            return Change(account, statuses={f"{account}-{id}": status})
        case ("job", id, body):
            return Change(account, enqueued_jobs=[jobs.Job(f"{account}-{id}", 0, account, "1", 1, "", body, 1)])
        case ("contact", peer, known):
            return Change(account, checked_contacts=[contacts.StoredContact(account, peer, known, 1)])
    raise AssertionError(step)


def sensible(steps: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    """Return the steps that can happen: half a session is written only while the session exists."""
    there: set[str] = set()
    kept = []
    for step in steps:
        if step[0] == "whole":
            there.add(step[1])
        elif step[0] == "drop":
            there.discard(step[1])
        elif step[0] == "half" and step[1] not in there:
            continue
        kept.append(step)
    return kept


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=st.lists(STEPS, max_size=12))
async def test_a_batch_has_the_same_effect_as_its_changes_one_by_one(
    database_factory: DatabaseFactory, steps: list[tuple[Any, ...]]
) -> None:
    global _database
    if _database is None or _database[0] is not database_factory:
        _database = (database_factory, await database_factory("business"))
    database = _database[1]
    async with database.transaction() as connection:
        for table in TABLES:
            await connection.execute(table.delete())
        for account in ("batch", "singly"):
            await messages.add(
                connection,
                [
                    messages.MessageRow(f"{account}-{id}", account, 0, "1", "text", Status.ACCEPTED, 1, "")
                    for id in ("a", "b", "c")
                ],
            )
    journal = Journal(database, await a_lease(database), last_seq=0, seal=as_they_are)
    steps = sensible(steps)
    for step in steps:
        await journal.write(as_change("singly", step))
    futures = [journal.put(as_change("batch", step)) for step in steps]
    await asyncio.gather(*futures)
    await journal.close()

    found = await dump(database)
    for rows in found.values():
        halves: dict[str, list[tuple[Any, ...]]] = {"batch": [], "singly": []}
        for row in rows:
            account = "batch" if "batch" in str(row[0]) + str(row[2]) else "singly"
            halves[account].append(tuple(str(value).replace(account, "") for value in row))
        assert halves["batch"] == halves["singly"]


async def test_a_one_time_pre_key_is_used_by_only_one_session(database_factory: DatabaseFactory) -> None:
    """The second of two peers whose first messages name one pre-key keeps no session. The rest of its change
    stays."""
    database = await database_factory("business")
    async with database.transaction() as connection:
        await accounts.add_prekeys(connection, [accounts.OwnPreKey(ACCOUNT, accounts.ONE_TIME, 7, b"sealed")])
    journal = Journal(database, await a_lease(database), last_seq=0, seal=as_they_are)
    used = [UsedPreKey(peer, 7) for peer in ("1", "2", "3")]
    # Two in one commit, the third in a later one.
    first, second = (journal.put(a_first_message(key)) for key in used[:2])
    await asyncio.gather(first, second)
    await journal.write(a_first_message(used[2]))
    await journal.close()
    assert [key.was_gone for key in used] == [False, True, True]
    async with database.reading() as connection:
        assert [row.peer for row in await sessions.list_sessions(connection, ACCOUNT, ["1", "2", "3"])] == ["1"]
        assert not await accounts.list_prekeys(connection, ACCOUNT)
        assert len(await messages.list_progress(connection, ACCOUNT, ["in-1", "in-2", "in-3"])) == 3


async def test_a_repeated_commit_recognises_the_pre_key_it_consumed(
    database_factory: DatabaseFactory,
) -> None:
    plain = await database_factory("business")
    database = Breaking(plain.settings, "business")
    async with plain.transaction() as connection:
        await accounts.add_prekeys(connection, [accounts.OwnPreKey(ACCOUNT, accounts.ONE_TIME, 7, b"sealed")])
    journal = Journal(database, await a_lease(plain), last_seq=0, seal=as_they_are)
    used = UsedPreKey("1", 7)
    database.breaks = 1
    await journal.write(a_first_message(used))
    await journal.close()
    assert not used.was_gone
    async with plain.reading() as connection:
        assert len(await sessions.list_sessions(connection, ACCOUNT, ["1"])) == 1
    await database.close()


async def test_a_repeated_commit_recognises_the_number_that_it_issued_and_moved(
    database_factory: DatabaseFactory,
) -> None:
    plain = await database_factory("business")
    database = Breaking(plain.settings, "business")
    journal = Journal(database, await a_lease(plain), last_seq=0, seal=as_they_are)
    await journal.write(Change(ACCOUNT, new_standins=[StandIn(ACCOUNT, "9991", "US.1")]))
    database.breaks = 1
    changes = [
        Change(
            ACCOUNT, new_standins=[StandIn(ACCOUNT, "9992", "US.2")], moved_standins=[StandIn(ACCOUNT, "9991", "A")]
        ),
        Change(ACCOUNT, moved_standins=[StandIn(ACCOUNT, "9992", "B")]),
        Change(ACCOUNT, moved_standins=[StandIn(ACCOUNT, "9992", "C")]),
    ]
    await asyncio.gather(*(journal.write(change) for change in changes))
    assert database.breaks == 0
    await journal.close()
    async with plain.reading() as connection:
        found = await standins.list_by_number(connection, ACCOUNT, ["9991", "9992"])
    assert {row.number: row.user_id for row in found} == {"9991": "A", "9992": "C"}
    await database.close()


def a_first_message(used: UsedPreKey) -> Change:
    return Change(
        ACCOUNT,
        new_messages=(a_message(f"in-{used.peer}", Status.RECEIVED),),
        whole_sessions=(sessions.SealedSession(ACCOUNT, used.peer, b"sending", b"receiving"),),
        used_prekeys=(used,),
    )


_database: tuple[DatabaseFactory, Database] | None = None


async def test_sequence_numbers_of_different_numbers_are_never_equal(database_factory: DatabaseFactory) -> None:
    database = await database_factory("business")
    lease = await a_lease(database)
    now_ns = time.time_ns()
    seqs: dict[int, list[int]] = {}
    for shard in (32, 33, 99 * 32):
        async with database.transaction() as connection:
            free = {"owner": "me", "address": "", "epoch": lease.epoch, "heartbeat_at": 0}
            await connection.execute(shards.table.insert(), [{"shard": shard, **free}])
    for shard in (0, 32, 33, 99 * 32):
        own = seqs[shard] = []
        mine = shards.Lease(shard, lease.owner, lease.epoch)
        journal = Journal(database, mine, last_seq=0, seal=as_they_are, now_ns=lambda: now_ns)
        journal.on_callbacks(lambda rows, own=own: own.extend(row.seq for row in rows))  # type: ignore[misc]
        await journal.write(Change(ACCOUNT, new_callbacks=[a_callback(f"{shard} {n}") for n in range(300)]))
        await journal.close()
    for shard, own in seqs.items():
        assert own == sorted(set(own)), shard
        assert len(own) == 300
        # At most the time of 300 steps of 256 microseconds ahead.
        assert all(0 <= (seq >> 5) - now_ns // 1000 <= 301 * 256 for seq in own)
    assert len({seq for own in seqs.values() for seq in own}) == 1200
