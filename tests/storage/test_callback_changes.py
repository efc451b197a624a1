"""Replays and purges that Webapps carry out, on both databases."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from tests.conftest import DatabaseFactory
from tidings.storage.business import callback_changes
from tidings.storage.business.callback_changes import CallbackChange, ChangeState

ME, OTHER = "15550000000", "15550000001"
BEGUN = CallbackChange("0" * 16, ME, "replay", "status given up ✉", "ann (console 0)", 10, 1_780_000_000_000)


async def test_progress_is_reported_until_a_stop_is_requested(database_factory: DatabaseFactory) -> None:
    database = await database_factory("business")
    async with database.transaction() as connection:
        await callback_changes.add(connection, BEGUN)
        assert await callback_changes.report(connection, BEGUN.id, done=4, stay=1, waits="w" * 300)
        await callback_changes.stop(connection, OTHER, BEGUN.id)
        assert await callback_changes.report(connection, BEGUN.id, done=4, stay=1, waits="w" * 300)
        found = await callback_changes.find(connection, ME, BEGUN.id)
        assert found is not None
        assert found == dataclasses.replace(BEGUN, done=4, stay=1, waits="w" * 255, silence_ms=found.silence_ms)
        assert 0 <= found.silence_ms < 60_000
        await callback_changes.stop(connection, ME, BEGUN.id)
        assert not await callback_changes.report(connection, BEGUN.id, done=5, stay=1, waits="")
        stopping = await callback_changes.find(connection, ME, BEGUN.id)
        await callback_changes.end(connection, BEGUN.id, done=6, stay=1, problem="p" * 300)
        ended = await callback_changes.find(connection, ME, BEGUN.id)
    assert stopping is not None
    assert ended is not None
    assert (stopping.state, ended.state) == (ChangeState.STOPPING, ChangeState.STOPPED)
    assert (ended.done, ended.stay, ended.problem, ended.has_ended) == (6, 1, "p" * 255, True)


async def test_a_change_of_a_number_that_was_removed_does_not_go_on(database_factory: DatabaseFactory) -> None:
    database = await database_factory("business")
    async with database.transaction() as connection:
        assert not await callback_changes.report(connection, BEGUN.id, done=1, stay=0, waits="")


async def test_a_change_without_reports_has_ended_with_its_webapp(database_factory: DatabaseFactory) -> None:
    database = await database_factory("business")
    table = callback_changes.table
    states = []
    async with database.transaction() as connection:
        await callback_changes.add(connection, BEGUN)
        for silent in (110_000, 15_000):
            await connection.execute(table.update().values(reported_at=table.c.reported_at - silent))
            found = await callback_changes.find(connection, ME, BEGUN.id)
            assert found is not None
            states.append((found.state, found.is_over))
    assert states == [(ChangeState.RUNNING, False), (ChangeState.LOST, True)]


async def test_changes_of_one_number_are_listed_and_deleted(database_factory: DatabaseFactory) -> None:
    database = await database_factory("business")
    rows = [dataclasses.replace(BEGUN, id=f"{n:016x}", started_at=BEGUN.started_at + n) for n in range(5)]
    async with database.transaction() as connection:
        for row in [*rows, dataclasses.replace(BEGUN, id="f" * 16, account=OTHER)]:
            await callback_changes.add(connection, row)
        await callback_changes.delete(connection, [rows[3].id])
        await callback_changes.delete(connection, [])
        found = await callback_changes.list_latest(connection, ME, limit=3)
        assert await callback_changes.find(connection, ME, "f" * 16) is None
    assert [row.id for row in found] == [rows[n].id for n in (4, 2, 1)]


@pytest.mark.parametrize(
    ("changes", "state"),
    [
        ({}, "running"),
        ({"is_stopped": True}, "stopping"),
        ({"has_ended": True, "done": 10}, "finished"),
        ({"has_ended": True, "done": 8, "stay": 2, "is_stopped": True}, "finished"),
        ({"has_ended": True, "done": 8, "stay": 1, "is_stopped": True}, "stopped"),
        ({"has_ended": True, "done": 8, "problem": "no"}, "stopped"),
        ({"has_ended": True, "done": 10, "silence_ms": 10**6}, "finished"),
        ({"silence_ms": 10**6, "is_stopped": True}, "lost"),
    ],
)
def test_the_state_of_a_callback_is_derived_from_its_row(changes: dict[str, Any], state: str) -> None:
    assert str(dataclasses.replace(BEGUN, **changes).state) == state
