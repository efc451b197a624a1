"""History of callbacks that several shards end in one transaction."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Sequence

import pytest

from coreapp.journal import journal as journal_module
from coreapp.journal.change import Change
from coreapp.journal.journal import Journal, make_committer
from tests.conftest import DatabaseFactory
from tests.coreapp.journal.test_commits import close, leases
from tests.coreapp.journal.test_journal import ACCOUNT, Breaking, a_callback, as_they_are
from tidings.storage.business import callback_history
from tidings.storage.business.callback_history import Attempt, EndedAttempt
from tidings.storage.business.callbacks import Callback
from tidings.storage.database import Database

OTHER = "15550000001"


class OwnKey:
    """Sealer that puts the name of its key before what it seals."""

    def __init__(self, name: bytes) -> None:
        self._name = name

    def seal_attempts(self, found: Sequence[Attempt], /) -> Sequence[Attempt]:
        return [dataclasses.replace(one, response=self._name + (one.response or b"")) for one in found]

    def seal_texts(self, account: str, name: int, texts: bytes, /) -> bytes:
        return self._name + texts


async def journals(database: Database, keys: Sequence[bytes]) -> Sequence[Journal]:
    committer = make_committer(database)
    return [
        Journal(database, lease, last_seq=0, seal=as_they_are, history=OwnKey(key), committer=committer)
        for lease, key in zip(await leases(database, len(keys)), keys, strict=True)
    ]


def attempt(callback: Callback) -> Attempt:
    return callback_history.attempt(callback, 1, 5, 7.0, 500, error="", response=b"!")


def ends(callback: Callback) -> Change:
    return Change(
        callback.account,
        finished_callbacks=[callback.seq],
        ended_callbacks=[EndedAttempt(callback, 1, 5, 7, 500, b"!")],
    )


async def test_each_number_seals_its_own_history(database_factory: DatabaseFactory) -> None:
    database = await database_factory("business")
    first, second = opened = await journals(database, [b"A", b"B"])
    accounts = {first: ACCOUNT, second: OTHER}
    new = {
        journal: [dataclasses.replace(a_callback(f"{n}"), account=account, shard=journal.lease.shard) for n in range(2)]
        for journal, account in accounts.items()
    }
    await asyncio.gather(*(journal.put(Change(accounts[journal], new_callbacks=new[journal])) for journal in opened))
    await asyncio.gather(
        *(journal.put(ends(new[journal][0])) for journal in opened),
        *(
            journal.put(Change(accounts[journal], failed_callbacks=[one], attempts=[attempt(one)]))
            for journal in opened
            for one in new[journal][1:]
        ),
    )
    async with database.reading() as connection:
        for journal, key in ((first, b"A"), (second, b"B")):
            stored = await callback_history.find(connection, accounts[journal], new[journal][0].seq)
            assert stored is not None
            assert stored.part.sealed[:1] == key
            rows = await callback_history.list_attempts(connection, accounts[journal], new[journal][1].seq)
            assert [row.response for row in rows] == [key + b"!"]
    await close(*opened)


async def test_shards_of_a_number_that_repeat_a_commit_of_unknown_outcome_add_no_second_history(
    database_factory: DatabaseFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journal_module, "SHARED_RETRY_SECONDS", 0.0)
    database = Breaking((await database_factory("business")).settings, "business")
    opened = await journals(database, [b"A", b"A"])
    new = {
        journal: [dataclasses.replace(a_callback(f"{n}"), shard=journal.lease.shard) for n in range(3)]
        for journal in opened
    }
    await asyncio.gather(*(journal.put(Change(ACCOUNT, new_callbacks=new[journal])) for journal in opened))
    database.breaks = 1
    await asyncio.gather(*(journal.put(ends(one)) for journal in opened for one in new[journal]))
    assert database.breaks == 0
    async with database.reading() as connection:
        counted = await callback_history.count_page(connection, ACCOUNT, after=0, limit=100)
    assert sorted(counted.sizes) == sorted((max(one.seq for one in new[journal]), 3) for journal in opened)
    await close(*opened)
    await database.close()
