"""Command line: list of the callbacks that the webhook did not accept."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest

from cli import callback_resends, coreapp_client
from cli.guard import CommandFailure
from cli.queue_changes import QueueChanges
from tests.cli.support import run
from tests.conftest import DatabaseFactory
from tidings.installation.settings import DatabaseSettings
from tidings.storage.business import callback_history, callback_replays, callbacks, numbers, shards
from tidings.storage.business.callback_history import EndedAttempt
from tidings.storage.business.callback_views import CallbackFilter
from tidings.storage.business.callbacks import Callback
from tidings.storage.database import Database
from tidings.wire import core

WHY = "Forbidden: 10.0.0.1 is a private address, which TIDINGS_OUTGOING_ALLOW does not list"


def failed(seq: int, attempts: int) -> Callback:
    row = Callback(seq, 0, "15550000000", f"gBEG{seq}", "status_change", b"{}", 1_700_000_000_000)
    row.attempt, row.due_at, row.last_error = attempts, 1_700_000_060_000, WHY if attempts else ""
    return row


def test_failed_callbacks_and_dead_letters_are_listed_with_the_reason(tmp_path: Path) -> None:
    variables = {"TIDINGS_DATA_DIR": str(tmp_path)}
    assert run("migrate", **variables).returncode == 0

    async def fill() -> None:
        database = Database(DatabaseSettings(f"sqlite+aiosqlite:///{tmp_path}/business.db"), "business")
        rows = [failed(1, 0), failed(2, 3), failed(3, 12)]
        async with database.transaction() as connection:
            await callbacks.enqueue(connection, rows, [b"\x01"] * 3)
            await callbacks.reschedule(connection, rows[1:2], [b"\x01"])
            await callbacks.mark_dead(connection, rows[2:], [b"\x01"])
        await database.close()

    asyncio.run(fill())
    listed = run("callbacks", "list", **variables)
    assert listed.returncode == 0, listed.stderr
    assert listed.stdout.splitlines() == [
        f"evt_2  status_change  gBEG2  3 attempts, again at 2023-11-14T22:14:20Z  {WHY}",
        f"evt_3  status_change  gBEG3  12 attempts, given up  {WHY}",
        "1 to be retried, 1 dead letter",
    ]
    as_json = run("callbacks", "list", "--json", **variables)
    assert as_json.returncode == 0, as_json.stderr
    failing, dead = json.loads(as_json.stdout)["callbacks"]
    assert failing.pop("age_s") > 0
    assert failing == {
        "event_id": "evt_2",
        "shard": 0,
        "status": "failing",
        "kind": "status_change",
        "subject": "gBEG2",
        "recipient": None,
        "attempts": 3,
        "created_at": "2023-11-14T22:13:20Z",
        "next_attempt_at": "2023-11-14T22:14:20Z",
        "last_error": WHY,
        "request_id": None,
    }
    assert (dead["event_id"], dead["status"], dead["attempts"], dead["next_attempt_at"]) == ("evt_3", "dead", 12, None)


def test_a_list_of_no_callbacks_as_json_is_an_empty_list(tmp_path: Path) -> None:
    variables = {"TIDINGS_DATA_DIR": str(tmp_path)}
    assert run("migrate", **variables).returncode == 0
    listed = run("callbacks", "list", "--json", **variables)
    assert (listed.returncode, listed.stderr) == (0, "")
    assert json.loads(listed.stdout) == {"callbacks": []}


def test_replays_of_dead_letters_are_listed_with_their_operator(tmp_path: Path) -> None:
    variables = {"TIDINGS_DATA_DIR": str(tmp_path)}
    assert run("migrate", **variables).returncode == 0
    for words, said in ((("callbacks", "replays"), "no replays\n"), (("queue", "audit"), "no audit entries\n")):
        done = run(*words, **variables)
        assert (done.returncode, done.stdout, done.stderr) == (0, "", said)
    assert run("queue", "audit", "--json", **variables).stderr == ""

    async def fill() -> None:
        database = Database(DatabaseSettings(f"sqlite+aiosqlite:///{tmp_path}/business.db"), "business")
        async with database.transaction() as connection:
            await callback_replays.add(connection, [callback_replays.Replay(255, 1_700_000_060_000, 0, "ann@desk")])
        await database.close()

    asyncio.run(fill())
    assert run("callbacks", "replays", **variables).stdout == "2023-11-14T22:14:20Z  evt_ff  ann@desk\n"


def test_the_attempts_at_waiting_and_accepted_callbacks_are_shown(tmp_path: Path) -> None:
    variables = {"TIDINGS_DATA_DIR": str(tmp_path)}
    assert run("migrate", **variables).returncode == 0
    at = 1_700_000_000_000

    async def fill() -> None:
        database = Database(DatabaseSettings(f"sqlite+aiosqlite:///{tmp_path}/business.db"), "business")
        waiting, done = failed(1, 2), failed(2, 0)
        done.recipient = "15550110001"
        tried = [
            callback_history.attempt(waiting, 1, at, 15_000, None, error="TimeoutError: ", response=b""),
            callback_history.attempt(waiting, 2, at + 3000, 7, 503, error="", response=b"secret"),
        ]
        last = EndedAttempt(done, 1, at + 1000, 12, 200, b"")
        async with database.transaction() as connection:
            await numbers.add_first(connection, "15550000000")
            await shards.create_shards(connection, 1)
            await callbacks.enqueue(connection, [waiting], [b"\x01"])
            await callbacks.reschedule(connection, [waiting], [b"\x01"])
            await callback_history.save_attempts(connection, tried)
            await callback_history.add(connection, [last], lambda account, name, texts: texts)
        await database.close()

    asyncio.run(fill())
    shown = run("callbacks", "show", "evt_1", "gBEG2", "evt_77", **variables)
    assert shown.returncode == 1
    assert shown.stdout.splitlines() == [
        "evt_1  status_change  gBEG1  -  failing, 2 attempts, again at 2023-11-14T22:14:20Z",
        "  2023-11-14T22:13:20Z  attempt 1  15000 ms  TimeoutError: ",
        "  2023-11-14T22:13:23Z  attempt 2  7 ms  HTTP 503",
        "evt_2  status_change  gBEG2  15550110001  done, 1 attempt",
        "  2023-11-14T22:13:21Z  attempt 1  12 ms  HTTP 200",
        "evt_77  unknown",
    ]


class Coreapp:
    """A Coreapp that replays what it is asked for, and refuses requests after `room` callbacks."""

    def __init__(self, room: int = 1_000_000) -> None:
        self.room = room
        self.requests: list[core.ReplayCallbacks] = []

    async def call(self, address: str, make: Callable[[int], Any]) -> Any:
        request = make(1)
        self.requests.append(request)
        if self.room <= 0:
            return core.Refused(1, 1016, "the callback queue is at its limit", 5)
        self.room -= len(request.seqs)
        return core.Replayed(1, len(request.seqs))


@pytest.fixture
async def database(database_factory: DatabaseFactory) -> Database:
    """Tables with three shards, each with an owner."""
    database = await database_factory("business")
    async with database.transaction() as connection:
        await shards.create_shards(connection, 3)
        for shard in range(3):
            assert await shards.claim(connection, shard, owner="c1", address="127.0.0.1:1", heartbeat_timeout=30)
    return database


def changes(database: Database, coreapp: Coreapp) -> QueueChanges:
    return QueueChanges(database, cast(Any, coreapp), heartbeat_timeout=30, replay_rate=math.inf)


async def test_each_callback_is_replayed_once_by_the_owner_of_its_shard(database: Database) -> None:
    coreapp = Coreapp()
    work = {0: range(2_001), 1: (), 2: range(5_000, 6_000)}
    assert await changes(database, coreapp).replay(work) == 3_001
    assert [(len(request.seqs), request.shard) for request in coreapp.requests] == [
        (1_000, 0),
        (1_000, 0),
        (1, 0),
        (1_000, 2),
    ]
    assert {request.by for request in coreapp.requests} == {coreapp_client.operator()}
    assert [seq for request in coreapp.requests for seq in request.seqs] == [*range(2_001), *range(5_000, 6_000)]


async def test_a_replay_pauses_after_each_page(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    pauses: list[float] = []

    async def sleep(seconds: float) -> None:
        pauses.append(seconds)

    monkeypatch.setattr(asyncio, "sleep", sleep)
    replaying = QueueChanges(database, cast(Any, Coreapp()), heartbeat_timeout=30)
    assert await replaying.replay({0: range(2_001), 2: range(3_000, 3_010)}) == 2_011
    assert [pause for pause in pauses if pause] == [5.0, 5.0, 0.005]


async def test_all_selected_callbacks_are_resent_by_pages_with_progress(database: Database) -> None:
    rows = [failed(seq << 5, 0) for seq in range(1, 251)]
    for place, row in enumerate(rows):
        row.shard, row.recipient = place % 3, f"1555011000{place % 2}"
    ended = [EndedAttempt(row, 1, 1, 1, 200, b"") for row in rows[:200]]
    async with database.transaction() as connection:
        await callback_history.add(connection, ended, lambda account, name, texts: texts)
        await callbacks.enqueue(connection, rows[200:], [b"\x01"] * 50)
        await callbacks.mark_dead(connection, rows[225:], [b"\x01"] * 25)
    coreapp, progress = Coreapp(), list[tuple[int, int | None]]()

    def note(total: int, reached: int | None) -> None:
        progress.append((total, reached))

    choice = CallbackFilter(recipient="15550110001", until=1)
    total = await callback_resends.resend(database, changes(database, coreapp), "15550000000", choice, note, page=50)
    chosen = [row.seq for place, row in enumerate(rows) if place % 2 and not 200 <= place < 225]
    assert sorted(seq for request in coreapp.requests for seq in request.seqs) == chosen
    assert total == len(chosen)
    assert [count for count, _ in progress] == [38, 88, 113]
    assert progress[-1][1] is None


async def test_an_event_that_was_posted_again_is_resent_once(database: Database) -> None:
    rows = [failed(seq << 5, 0) for seq in range(1, 101)]
    for place, row in enumerate(rows):
        # Each event has ended ten times.
        row.event = f"evt_{place % 10}"
    ended = [EndedAttempt(row, 1, 1, 1, 200, b"") for row in rows]
    async with database.transaction() as connection:
        await callback_history.add(connection, ended, lambda account, name, texts: texts)
    coreapp, choice = Coreapp(), CallbackFilter(until=1)
    sender = changes(database, coreapp)
    assert await callback_resends.resend(database, sender, "15550000000", choice, lambda *_: None, page=7) == 10
    newest = [row.seq for row in rows[-10:]]
    assert sorted(seq for request in coreapp.requests for seq in request.seqs) == newest


async def test_ended_callbacks_without_a_running_coreapp_are_an_error(database_factory: DatabaseFactory) -> None:
    database = await database_factory("business")
    ended = [EndedAttempt(failed(1 << 5, 0), 1, 1, 1, 200, b"")]
    async with database.transaction() as connection:
        await callback_history.add(connection, ended, lambda account, name, texts: texts)
        await shards.create_shards(connection, 1)
    sender, choice = changes(database, Coreapp()), CallbackFilter(until=1)
    with pytest.raises(CommandFailure, match="no Coreapp of 15550000000 runs"):
        await callback_resends.resend(database, sender, "15550000000", choice, lambda *_: None)


async def test_a_page_of_callbacks_that_are_gone_does_not_end_a_resend(database: Database) -> None:
    class Emptied(Coreapp):
        """A Coreapp from which the first callbacks have been deleted meanwhile."""

        async def call(self, address: str, make: Callable[[int], Any]) -> Any:
            response = await super().call(address, make)
            return response if len(self.requests) > 1 else core.Replayed(1, 0)

    ended = [EndedAttempt(failed(seq << 5, 0), 1, 1, 1, 200, b"") for seq in range(1, 21)]
    async with database.transaction() as connection:
        await callback_history.add(connection, ended, lambda account, name, texts: texts)
    sender, choice = changes(database, Emptied()), CallbackFilter(until=1)
    assert await callback_resends.resend(database, sender, "15550000000", choice, lambda *_: None, page=10) == 10


async def test_a_full_queue_ends_a_replay_with_the_number_of_replayed_callbacks(database: Database) -> None:
    with pytest.raises(CommandFailure, match=r"at its limit.* \(2000 callbacks were changed before\)$"):
        await changes(database, Coreapp(room=2_000)).replay({0: range(1_000), 1: range(5_000)})


def test_dead_letters_and_named_callbacks_are_replayed_without_an_owner(tmp_path: Path) -> None:
    variables = {"TIDINGS_DATA_DIR": str(tmp_path)}
    assert run("migrate", **variables).returncode == 0

    async def fill() -> None:
        database = Database(DatabaseSettings(f"sqlite+aiosqlite:///{tmp_path}/business.db"), "business")
        rows = [failed(1, 0), failed(2, 3), failed(3, 12), failed(4, 12)]
        async with database.transaction() as connection:
            await shards.create_shards(connection, 1)
            await callbacks.enqueue(connection, rows, [b"\x01"] * 4)
            await callbacks.reschedule(connection, rows[1:2], [b"\x01"])
            await callbacks.mark_dead(connection, rows[2:], [b"\x01"] * 2)
        await database.close()

    asyncio.run(fill())
    assert run("callbacks", "replay", "evt_1", "evt_2", "evt_3", **variables).stdout == (
        "2 callbacks are pending again\n"
    )
    assert run("callbacks", "replay", **variables).stdout == "1 callback is pending again\n"
    assert run("callbacks", "replay", **variables).stdout == "0 callbacks are pending again\n"


def two_numbers(directory: Path) -> dict[str, str]:
    """Create the tables, with a dead letter of each of two numbers. Returns the variables of the installation."""
    variables = {"TIDINGS_DATA_DIR": str(directory), "TIDINGS_BUSINESS_NUMBER": "15550000000"}
    assert run("migrate", **variables).returncode == 0

    async def fill() -> None:
        database = Database(DatabaseSettings(f"sqlite+aiosqlite:///{directory}/business.db"), "business")
        rows = [failed(1, 12), dataclasses.replace(failed(2, 12), account="15550000009")]
        async with database.transaction() as connection:
            await numbers.add_first(connection, "15550000000")
            await numbers.add(connection, "15550000009")
            await shards.create_shards(connection, 1)
            await callbacks.enqueue(connection, rows, [b"\x01"] * 2)
            await callbacks.mark_dead(connection, rows, [b"\x01"] * 2)
        await database.close()

    asyncio.run(fill())
    return variables


def test_a_replay_of_one_number_leaves_the_dead_letters_of_the_others(tmp_path: Path) -> None:
    variables = two_numbers(tmp_path)
    done = run("callbacks", "replay", "--number", "15550000009", **variables)
    assert (done.returncode, done.stdout) == (0, "1 callback is pending again\n"), done.stderr


def test_a_list_of_one_number_has_only_its_callbacks(tmp_path: Path) -> None:
    variables = two_numbers(tmp_path)
    listed = run("callbacks", "list", "--number", "15550000009", **variables)
    assert "evt_1 " not in listed.stdout
    assert "evt_2 " in listed.stdout
    as_json = run("callbacks", "list", "--number", "15550000009", "--json", **variables)
    assert [entry["event_id"] for entry in json.loads(as_json.stdout)["callbacks"]] == ["evt_2"]


def test_a_replay_of_an_unknown_event_is_reported(tmp_path: Path) -> None:
    done = run("callbacks", "replay", "evt_77", **two_numbers(tmp_path))
    assert (done.returncode, done.stderr) == (1, "evt_77  unknown, or not tried yet\n")


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (("resend", "evt_1"), "evt_1: event ids do not apply to resend"),
        (("replay", "--since", "1h"), "--since applies to resend only"),
        (("show",), "name the event ids to show"),
        (("show", "evt_1", "--json"), "--json applies to list only"),
        (("replay", "--json"), "--json applies to list only"),
    ],
)
def test_arguments_that_an_action_would_ignore_are_refused(
    tmp_path: Path, arguments: tuple[str, ...], error: str
) -> None:
    done = run("callbacks", *arguments, **two_numbers(tmp_path))
    assert (done.returncode, done.stdout) == (1, "")
    assert error in done.stderr
