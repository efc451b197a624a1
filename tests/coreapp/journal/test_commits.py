"""Shared transactions: the journals of several shards in one process."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
from collections.abc import Callable, Sequence
from operator import attrgetter, itemgetter
from typing import Any

import pytest
import sqlalchemy as sa

from coreapp.errors import ChangeRefused, OutcomeUnknown
from coreapp.journal import commits
from coreapp.journal.change import Change
from coreapp.journal.commits import CommitLane, Committer
from coreapp.journal.journal import Journal, make_committer
from coreapp.journal.session_rows import UsedPreKey
from harness import metrics
from tests.conftest import DatabaseFactory
from tests.coreapp.journal.test_journal import (
    ACCOUNT,
    Breaking,
    a_callback,
    a_first_message,
    a_message,
    as_they_are,
    dump,
    job_to,
)
from tests.database_triggers import refused_rows
from tidings.aio.batcher import BatcherClosed
from tidings.storage.business import accounts, callbacks, contacts, identities, jobs, messages, sessions, shards
from tidings.storage.database import Connection, Database

COMMITS = "tidings_db_commits_total"


async def leases(database: Database, count: int = 2, owner: str = "me") -> list[shards.Lease]:
    found = []
    async with database.transaction() as connection:
        await shards.create_shards(connection, count)
        for shard in range(count):
            found.append(await shards.claim(connection, shard, owner=owner, address="a:1", heartbeat_timeout=30.0))
    return [lease for lease in found if lease is not None]


async def journals(database: Database, count: int = 2) -> list[Journal]:
    committer = make_committer(database)
    return [
        Journal(database, lease, last_seq=0, seal=as_they_are, committer=committer)
        for lease in await leases(database, count)
    ]


async def lose(database: Database, journal: Journal) -> None:
    """Have another process take the shard of a journal."""
    async with database.transaction() as connection:
        mine = shards.table.c.shard == journal.lease.shard
        await connection.execute(shards.table.update().where(mine).values(epoch=shards.table.c.epoch + 1))


async def close(*opened: Journal) -> None:
    for journal in opened:
        await journal.close()


async def outcomes(futures: Sequence[asyncio.Future[None]]) -> list[type[object]]:
    return [type(result) for result in await asyncio.gather(*futures, return_exceptions=True)]


async def subjects(database: Database, shard: int) -> list[str]:
    async with database.reading() as connection:
        rows = await connection.execute(
            sa.select(callbacks.table.c.subject)
            .where(callbacks.table.c.subject.like(f"{shard}-%"))
            .order_by(callbacks.table.c.seq)
        )
        return [row[0] for row in rows]


async def test_changes_of_several_shards_share_a_transaction_in_the_order_of_each(
    database_factory: DatabaseFactory,
) -> None:
    database = await database_factory("business")
    opened = await journals(database, 3)
    told: list[list[str]] = [[], [], []]
    for journal, own in zip(opened, told, strict=True):
        journal.on_callbacks(lambda rows, own=own: own.extend(row.subject for row in rows))  # type: ignore[misc]
    before = metrics.value(COMMITS, family="business")
    futures = [
        journal.put(Change(ACCOUNT, new_callbacks=[a_callback(f"{shard}-{n:02}")]))
        for n in range(20)
        for shard, journal in enumerate(opened)
    ]
    await asyncio.gather(*futures)
    assert metrics.value(COMMITS, family="business") - before == 1
    later = [
        journal.put(Change(ACCOUNT, new_callbacks=[a_callback(f"{shard}-{n:02}")]), urgent=True)
        for n in range(20, 30)
        for shard, journal in enumerate(opened)
    ]
    await asyncio.gather(*later)
    assert metrics.value(COMMITS, family="business") - before == 2
    for shard, own in enumerate(told):
        assert own == [f"{shard}-{n:02}" for n in range(30)]
        assert await subjects(database, shard) == own
    async with database.reading() as connection:
        assert [row[0] for row in await connection.execute(sa.select(shards.table.c.epoch))] == [1, 1, 1]
    await close(*opened)


async def test_callbacks_of_each_shard_are_sealed_by_its_own_journal(database_factory: DatabaseFactory) -> None:
    database = await database_factory("business")
    committer = make_committer(database)
    opened = [
        Journal(
            database,
            lease,
            last_seq=0,
            seal=lambda found, mark=mark: [mark + callback.body for callback in found],  # type: ignore[misc]
            committer=committer,
        )
        for lease, mark in zip(await leases(database), (b"A", b"B"), strict=True)
    ]
    changes = [
        (journal, Change(ACCOUNT, new_callbacks=[a_callback(f"{shard}-{n}")]))
        for n in range(2)
        for shard, journal in enumerate(opened)
    ]
    await asyncio.gather(*(journal.put(change) for journal, change in changes))
    written = [change.new_callbacks[0] for _, change in changes]
    await asyncio.gather(
        opened[0].put(Change(ACCOUNT, failed_callbacks=[written[0]], dead_callbacks=[written[2]])),
        opened[1].put(Change(ACCOUNT, dead_callbacks=[written[1]], failed_callbacks=[written[3]])),
    )
    async with database.reading() as connection:
        found = {
            row.subject: row.body
            for row in await connection.execute(sa.select(callbacks.table.c.subject, callbacks.table.c.body))
        }
    assert found == {"0-0": b"A{}", "0-1": b"A{}", "1-0": b"B{}", "1-1": b"B{}"}
    await close(*opened)


async def test_a_refused_row_of_one_shard_fails_only_there(database_factory: DatabaseFactory) -> None:
    database = await database_factory("business")
    first, second = await journals(database)
    async with refused_rows(database, "jobs", "NEW.id = 'bad'"):
        futures = [
            first.put(Change(ACCOUNT, enqueued_jobs=[job_to("1", "a")])),
            second.put(Change(ACCOUNT, enqueued_jobs=[job_to("2", "b")])),
            second.put(Change(ACCOUNT, enqueued_jobs=[job_to("3", "bad")])),
            second.put(Change(ACCOUNT, enqueued_jobs=[job_to("4", "c")])),
            first.put(Change(ACCOUNT, enqueued_jobs=[job_to("5", "d")])),
        ]
        assert await outcomes(futures) == [type(None), type(None), ChangeRefused, type(None), type(None)]
    assert isinstance(second.broken.exception(), ChangeRefused)
    assert not first.broken.done()
    await first.write(Change(ACCOUNT, enqueued_jobs=[job_to("6", "e")]))
    with pytest.raises(ChangeRefused):
        await second.write(Change(ACCOUNT, enqueued_jobs=[job_to("7", "f")]))
    assert [row[0] for row in (await dump(database))["jobs"]] == ["a", "b", "c", "d", "e"]
    await close(first, second)


async def test_a_listener_that_raises_breaks_only_its_shard(database_factory: DatabaseFactory) -> None:
    database = await database_factory("business")
    first, second = await journals(database)

    def refuse(rows: Sequence[callbacks.Callback]) -> None:
        raise ValueError("no room")

    told: list[str] = []
    first.on_callbacks(refuse)
    second.on_callbacks(lambda rows: told.extend(row.subject for row in rows))
    before = metrics.value(COMMITS, family="business")
    futures = [
        journal.put(Change(ACCOUNT, new_callbacks=[a_callback(f"{shard}-0")]))
        for shard, journal in enumerate((first, second))
    ]
    assert await outcomes(futures) == [type(None), type(None)], "both are on disk"
    assert metrics.value(COMMITS, family="business") - before == 1
    assert told == ["1-0"]
    assert isinstance(first.broken.exception(), ValueError)
    assert not second.broken.done()
    with pytest.raises(ValueError, match="no room"):
        await first.write(Change(ACCOUNT, new_callbacks=[a_callback("0-1")]))
    assert await subjects(database, 0) == ["0-0"]
    await close(first, second)


async def test_a_lost_lease_breaks_only_its_shard(database_factory: DatabaseFactory) -> None:
    database = await database_factory("business")
    opened = await journals(database, 3)
    await asyncio.gather(*(journal.put(Change(ACCOUNT)) for journal in opened))
    await lose(database, opened[1])
    late = metrics.value("tidings_shard_late_commits_total", shard="1")
    futures = [
        journal.put(Change(ACCOUNT, new_messages=[a_message(f"{shard}-{n}")]))
        for n in range(2)
        for shard, journal in enumerate(opened)
    ]
    assert await outcomes(futures) == [type(None), shards.LeaseLost, type(None)] * 2
    assert [journal.broken.done() for journal in opened] == [False, True, False]
    assert metrics.value("tidings_shard_late_commits_total", shard="1") - late == 1
    # Changes that are put later do not enter a transaction, and the others share theirs again.
    before = metrics.value(COMMITS, family="business")
    futures = [
        journal.put(Change(ACCOUNT, new_messages=[a_message(f"{shard}-9")])) for shard, journal in enumerate(opened)
    ]
    assert await outcomes(futures) == [type(None), shards.LeaseLost, type(None)]
    assert metrics.value(COMMITS, family="business") - before == 1
    assert [row[0] for row in (await dump(database))["messages"]] == ["0-0", "0-1", "0-9", "2-0", "2-1", "2-9"]
    await close(*opened)


async def test_after_a_commit_of_unknown_outcome_only_the_shard_with_a_lost_lease_stays_unknown(
    database_factory: DatabaseFactory,
) -> None:
    class Taken(Breaking):
        """Database in which another process takes shard 1 before the connection breaks."""

        async def after_commit(self) -> None:
            await lose(self, second)

    database = Taken((await database_factory("business")).settings, "business")
    first, second = await journals(database)
    told: list[str] = []
    first.on_callbacks(lambda rows: told.extend(row.subject for row in rows))
    database.breaks = 1
    futures = [
        first.put(Change(ACCOUNT, new_messages=[a_message("m0")], new_callbacks=[a_callback("0-0")])),
        second.put(Change(ACCOUNT, new_messages=[a_message("m1")])),
    ]
    assert await outcomes(futures) == [type(None), OutcomeUnknown]
    assert isinstance(second.broken.exception(), shards.LeaseLost)
    assert not first.broken.done()
    assert [row[0] for row in (await dump(database))["messages"]] == ["m0", "m1"]
    # The repeated commit has added no second row.
    assert await subjects(database, 0) == told == ["0-0"]
    await close(first, second)
    await database.close()


async def test_each_shard_acknowledges_the_identities_of_its_own_recipients(database_factory: DatabaseFactory) -> None:
    database = await database_factory("business")
    first, second = await journals(database)
    peers = {"1": first, "2": second, "3": first, "4": second}

    def learn(peer: str) -> Change:
        return Change(ACCOUNT, found_identities=[identities.StoredIdentity(ACCOUNT, peer, b"1" * 8, 1, False)])

    async def unacknowledged() -> list[str]:
        async with database.reading() as connection:
            return [row.peer for row in await identities.list_unacknowledged(connection, ACCOUNT, after="", limit=10)]

    await asyncio.gather(*(peers[peer].put(learn(peer)) for peer in ("1", "2")))
    # In one transaction: an identity that is found before, and acknowledgements of both shards or of one.
    await asyncio.gather(
        second.put(learn("4")),
        first.put(learn("3")),
        first.put(Change(ACCOUNT, acknowledges_all=lambda peer: peers[peer] is first)),
    )
    assert await unacknowledged() == ["2", "4"]
    await asyncio.gather(
        second.put(Change(ACCOUNT, acknowledges_all=lambda peer: peers[peer] is second)),
        first.put(Change(ACCOUNT, acknowledges_all=lambda peer: peers[peer] is first)),
    )
    assert await unacknowledged() == []
    await close(first, second)


async def test_a_pre_key_that_a_failed_transaction_found_gone_can_still_be_used(
    database_factory: DatabaseFactory,
) -> None:
    """Two shards use one pre-key in a transaction that fails because of the first one, so the second one may use it."""
    database = await database_factory("business")
    async with database.transaction() as connection:
        await accounts.add_prekeys(connection, [accounts.OwnPreKey(ACCOUNT, accounts.ONE_TIME, 7, b"sealed")])
    first, second = await journals(database)
    refused, used = UsedPreKey("1", 7), UsedPreKey("2", 7)
    async with refused_rows(database, "callbacks", "NEW.subject = 'bad'"):
        change = dataclasses.replace(a_first_message(refused), new_callbacks=[a_callback("bad")])
        futures = [first.put(change), second.put(a_first_message(used))]
        assert await outcomes(futures) == [ChangeRefused, type(None)]
    assert not used.was_gone
    async with database.reading() as connection:
        assert [row.peer for row in await sessions.list_sessions(connection, ACCOUNT, ["1", "2"])] == ["2"]
    await close(first, second)


async def test_processes_with_shards_of_the_same_number_do_not_deadlock(database_factory: DatabaseFactory) -> None:
    database = await database_factory("business")
    other = Database(database.settings, "business")
    owned = await leases(database, 6)
    conflicts = metrics.value("tidings_db_conflicts_total", family="business")
    processes = [make_committer(database), make_committer(other)]
    opened = [
        Journal(
            (database, other)[lease.shard % 2],
            lease,
            last_seq=0,
            seal=as_they_are,
            committer=processes[lease.shard % 2],
        )
        for lease in reversed(owned)
    ]
    peers = [f"{n}" for n in range(50)]
    for turn in range(20):
        # Both processes save the same contacts, in opposite orders.
        changes = [
            Change(
                ACCOUNT,
                new_messages=[a_message(f"{turn}-{n}")],
                checked_contacts=[
                    contacts.StoredContact(ACCOUNT, peer, True, turn)
                    for peer in (peers if journal.lease.shard % 2 else reversed(peers))
                ],
            )
            for n, journal in enumerate(opened)
        ]
        await asyncio.gather(*(journal.put(change) for journal, change in zip(opened, changes, strict=True)))
    assert len((await dump(database))["messages"]) == 120
    assert metrics.value("tidings_db_conflicts_total", family="business") == conflicts
    await close(*opened)
    await other.close()


class Owner:
    """Shard without a database."""

    def __init__(self, committer: Committer[Owner, str], apart: Callable[[], Any] | None = None) -> None:
        self.broken: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.committer = committer
        self.lane = CommitLane[Owner, str](self)
        self.apart = apart
        self.alone: list[Sequence[str]] = []

    def put(self, change: str, *, urgent: bool = False) -> asyncio.Future[None]:
        return self.committer.put(self.lane, change, urgent=urgent)

    def fail(self, error: BaseException) -> None:
        self.broken.set_exception(error)
        self.broken.exception()

    async def commit_alone(
        self, changes: Sequence[str], earlier: Exception, *, was_alone: bool
    ) -> Sequence[Exception | None]:
        self.alone.append(changes)
        if self.apart is not None:
            await self.apart()
        return [None] * len(changes)


Batch = Sequence[tuple[Owner, Sequence[str]]]


class Transactions:
    """Records the transactions of a committer, the first of which wait until they are let through."""

    def __init__(self) -> None:
        self.committer: Committer[Owner, str] = Committer(self.commit)
        self.found: list[dict[Owner, Sequence[str]]] = []
        self.times: list[float] = []
        self.passes = asyncio.Event()
        self.passes.set()
        self.error: Exception | None = None

    async def commit(self, batch: Batch) -> None:
        self.found.append(dict(batch))
        self.times.append(asyncio.get_running_loop().time())
        await self.passes.wait()
        if self.error is not None:
            raise self.error


async def test_a_flooded_shard_leaves_the_others_their_share_of_each_transaction() -> None:
    transactions = Transactions()
    flooded, *others = (Owner(transactions.committer) for _ in range(5))
    flood = [flooded.put(f"{n}") for n in range(2000)]
    few = [other.put(f"{n}") for n in range(10) for other in others]
    many = [others[0].put(f"{n}") for n in range(10, 250)]
    await asyncio.gather(*flood, *few, *many)
    sizes = [[len(batch.get(owner, ())) for owner in (flooded, *others)] for batch in transactions.found]
    # 500 changes: three shards have 10 each, and two share the rest.
    assert sizes[0] == [235, 235, 10, 10, 10]
    assert sizes[1] == [485, 15, 0, 0, 0]
    assert [sum(column) for column in zip(*sizes, strict=True)] == [2000, 250, 10, 10, 10]
    assert all(sum(size) <= 500 for size in sizes)
    assert [change for batch in transactions.found for change in batch[flooded]] == [f"{n}" for n in range(2000)]


async def test_more_shards_than_a_transaction_has_changes_are_served_in_turn() -> None:
    transactions = Transactions()
    owners = [Owner(transactions.committer) for _ in range(600)]
    await asyncio.gather(*(owner.put(f"{n}") for n in range(2) for owner in owners))
    assert [len(batch) for batch in transactions.found] == [500, 500, 200]
    assert set(transactions.found[1]) >= set(owners[500:])


async def test_transactions_without_an_urgent_change_are_spaced() -> None:
    transactions = Transactions()
    first, second = Owner(transactions.committer), Owner(transactions.committer)
    await first.put("a")
    await second.put("b")
    assert transactions.times[1] - transactions.times[0] >= 0.009


async def test_an_urgent_change_takes_along_what_waits_in_other_shards(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(commits, "SPACING", 3600.0)
    transactions = Transactions()
    first, second = Owner(transactions.committer), Owner(transactions.committer)
    await first.put("a")
    later = second.put("b")
    await asyncio.sleep(0.02)
    assert not later.done()
    await first.put("c", urgent=True)
    assert later.done()
    assert transactions.found[1:] == [{second: ["b"], first: ["c"]}]


async def test_a_full_transaction_does_not_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(commits, "SPACING", 3600.0)
    transactions = Transactions()
    first, second = Owner(transactions.committer), Owner(transactions.committer)
    await first.put("a")
    async with asyncio.timeout(5):
        await asyncio.gather(*(owner.put(f"{n}") for n in range(250) for owner in (first, second)))


async def test_a_shard_that_cannot_commit_delays_no_other_one() -> None:
    transactions = Transactions()
    hangs = asyncio.Event()
    first, second = Owner(transactions.committer, apart=hangs.wait), Owner(transactions.committer)
    transactions.error = OSError("locked")
    stuck, free = first.put("a"), second.put("b")
    await free
    transactions.error = None
    behind = first.put("c", urgent=True)
    await second.put("d", urgent=True)
    assert transactions.committer.waited(first.lane) > 0
    assert transactions.committer.waited(second.lane) == 0
    assert not stuck.done()
    assert not behind.done()
    async with asyncio.timeout(5):
        await transactions.committer.close(second.lane)
    hangs.set()
    await asyncio.gather(stuck, behind)
    assert first.alone == [["a"]]
    assert [batch for batch in transactions.found[1:] if first in batch] == [{first: ["c"]}]


async def test_a_shard_whose_own_commit_raises_is_broken() -> None:
    transactions = Transactions()

    async def refuse() -> None:
        raise OSError("unexpected")

    failing, other = Owner(transactions.committer, apart=refuse), Owner(transactions.committer)
    transactions.error = OSError("locked")
    results = await asyncio.gather(failing.put("a"), other.put("b"), return_exceptions=True)
    assert [str(result) for result in results] == ["unexpected", "None"]
    assert str(failing.broken.exception()) == "unexpected"
    assert not other.broken.done()
    transactions.error = None
    with pytest.raises(OSError, match="unexpected"):
        await failing.put("c")
    assert transactions.found == [{failing: ["a"], other: ["b"]}]


async def test_closing_a_shard_commits_its_own_changes_and_leaves_the_others_open() -> None:
    transactions = Transactions()
    first, second = Owner(transactions.committer), Owner(transactions.committer)
    await first.put("a")
    last = [first.put("b"), first.put("c")]
    transactions.passes.clear()
    closing = asyncio.create_task(transactions.committer.close(first.lane))
    await asyncio.sleep(0.02)
    with pytest.raises(BatcherClosed):
        first.put("d")
    later = second.put("e")
    await asyncio.sleep(0.02)
    assert not closing.done()
    transactions.passes.set()
    await closing
    assert all(future.done() for future in last)
    await later
    await second.put("f", urgent=True)
    assert [list(batch.values()) for batch in transactions.found] == [[["a"]], [["b", "c"]], [["e"]], [["f"]]]
    assert transactions.committer.depth == 0
    # Nothing waits: it returns at once.
    await transactions.committer.close(second.lane)


async def test_a_broken_shard_takes_no_part_in_transactions() -> None:
    transactions = Transactions()
    broken, other = Owner(transactions.committer), Owner(transactions.committer)
    broken.broken.set_exception(OSError("broken"))
    broken.broken.exception()
    futures = [broken.put("a"), other.put("b"), broken.put("c")]
    results = await asyncio.gather(*futures, return_exceptions=True)
    assert [str(result) for result in results] == ["broken", "None", "broken"]
    assert transactions.found == [{other: ["b"]}]
    assert broken.alone == []
    with contextlib.suppress(OSError):
        await broken.put("d")
    assert len(transactions.found) == 1


async def test_rows_of_several_shards_are_added_in_the_order_of_their_keys(
    database_factory: DatabaseFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    added: dict[str, list[Any]] = {}

    def note(module: Any, name: str, key: Callable[[Any], Any]) -> None:
        write = getattr(module, name)

        async def noted(connection: Connection, what: Any, rows: Sequence[Any], *more: Any) -> None:
            added.setdefault(module.__name__.rpartition(".")[2], []).extend(map(key, rows))
            await write(connection, what, rows, *more)

        monkeypatch.setattr(module, name, noted)

    database = await database_factory("business")
    opened = await journals(database, 3)
    note(messages, "add_rows", attrgetter("id"))
    note(jobs, "save_rows", attrgetter("id"))
    note(callbacks, "write_rows", itemgetter("seq"))
    changes = [
        journal.put(
            Change(
                ACCOUNT,
                new_messages=[a_message(f"m{n}{shard}")],
                enqueued_jobs=[job_to("15550110001", f"m{n}{shard}")],
                new_callbacks=[a_callback(f"m{n}{shard}")],
            )
        )
        for n in range(5)
        for shard, journal in enumerate(opened)
    ]
    await asyncio.gather(*changes)
    assert added["messages"] == added["jobs"] == [f"m{n}{shard}" for n in range(5) for shard in range(3)]
    assert len(added["callbacks"]) == 15
    assert added["callbacks"] == sorted(added["callbacks"])
    await close(*opened)
