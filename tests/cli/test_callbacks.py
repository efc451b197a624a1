"""What the webhook did not take is listed from the command line."""

from __future__ import annotations

import asyncio
from pathlib import Path

from tests.cli.test_main import run
from tidings.runtime.settings import DatabaseSettings
from tidings.storage.business import callback_replays, callbacks
from tidings.storage.business.callbacks import Callback
from tidings.storage.database import Database

WHY = "Forbidden: 10.0.0.1 is a private address, which TIDINGS_OUTGOING_ALLOW does not list"


def failed(seq: int, attempts: int) -> Callback:
    row = Callback(seq, 0, "15550000000", f"gBEG{seq}", "status_change", b"{}", 1_700_000_000_000)
    row.attempt, row.due_at, row.last_error = attempts, 1_700_000_060_000, WHY if attempts else ""
    return row


def test_what_failed_and_what_was_given_up_are_listed_with_the_reason(tmp_path: Path) -> None:
    variables = {"TIDINGS_DATA_DIR": str(tmp_path)}
    assert run("migrate", **variables).returncode == 0

    async def fill() -> None:
        database = Database(DatabaseSettings(f"sqlite+aiosqlite:///{tmp_path}/business.db"), "business")
        rows = [failed(1, 0), failed(2, 3), failed(3, 12)]
        async with database.transaction() as connection:
            await callbacks.enqueue(connection, rows, [b"\x01"] * 3)
            await callbacks.reschedule(connection, rows[1:2], [b"\x01"])
            await callbacks.bury(connection, rows[2:], [b"\x01"])
        await database.close()

    asyncio.run(fill())
    listed = run("callbacks", "list", **variables)
    assert listed.returncode == 0, listed.stderr
    assert listed.stdout.splitlines() == [
        f"evt_2  status_change  gBEG2  3 attempts, again at 2023-11-14T22:14:20Z  {WHY}",
        f"evt_3  status_change  gBEG3  12 attempts, given up  {WHY}",
        "1 come again, 1 dead letters",
    ]


def test_who_brought_dead_letters_back_is_listed(tmp_path: Path) -> None:
    variables = {"TIDINGS_DATA_DIR": str(tmp_path)}
    assert run("migrate", **variables).returncode == 0

    async def fill() -> None:
        database = Database(DatabaseSettings(f"sqlite+aiosqlite:///{tmp_path}/business.db"), "business")
        async with database.transaction() as connection:
            await callback_replays.add(connection, [callback_replays.Replay(255, 1_700_000_060_000, 0, "ann@desk")])
        await database.close()

    asyncio.run(fill())
    assert run("callbacks", "replays", **variables).stdout == "2023-11-14T22:14:20Z  evt_ff  ann@desk\n"
