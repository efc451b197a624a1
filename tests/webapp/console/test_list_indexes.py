"""Statements of the lists of the console: each reads an index, whatever the filter."""

from __future__ import annotations

import sqlite3
from typing import Any

import pytest
import sqlalchemy as sa

from tests import statements
from tests.webapp.console.browser import Browser
from tests.webapp.console.scene import AT, callback, message, store_callbacks, store_messages
from tidings.storage.database import Database

# Tables that grow with the traffic.
LARGE = ("messages", "callbacks", "callback_history", "callback_attempts", "callback_replays", "jobs", "group_receipts")


def plan(path: str, statement: str, parameters: Any) -> list[str]:
    """Return the lines of SQLite's plan for a statement."""
    connection = sqlite3.connect(path)
    try:
        return [row[-1] for row in connection.execute(f"EXPLAIN QUERY PLAN {statement}", parameters)]
    finally:
        connection.close()


@pytest.mark.parametrize(
    "address",
    [
        "/console/messages",
        "/console/messages?direction=received&status=received",
        "/console/messages?status=failed&before=gBEGz",
        "/console/messages?type=image",
        "/console/messages?recipient=15550140001",
        "/console/messages?recipient=15550140001&status=read",
        "/console/messages?since=2026-05-28T00:00&until=2026-05-29T00:00",
        "/console/messages/{id}",
        "/console/callbacks",
        "/console/callbacks?status=failing",
        "/console/callbacks?status=given+up",
        "/console/callbacks?status=done&kind=status_change",
        "/console/callbacks?recipient=15550140001&before=1779999999999000",
        "/console/callbacks?id=gBEGmessage1",
        "/console/callbacks?id=evt_1",
        "/console/callbacks?since=2026-05-28T00:00&until=2026-05-29T00:00",
        "/console/callbacks/{seq}",
        "/console/callbacks/change?action=replay",
    ],
)
async def test_each_list_reads_an_index(database: Database, browser: Browser, address: str) -> None:
    row, sent = callback(1), message(1)
    await store_messages(database, sent)
    await store_callbacks(database, done=[row], failing=[callback(2, attempt=1, due_at=AT)], dead=[callback(3)])
    with statements.sent() as noted:
        response = await browser.get(address.format(id=sent.id, seq=row.seq))
    assert response.status_code == 200
    path = sa.engine.make_url(database.settings.url).database
    assert path is not None
    read = [one for one in noted if one[0].startswith("SELECT") and any(f"FROM {name}" in one[0] for name in LARGE)]
    assert read, "the page reads none of the large tables"
    for statement, parameters in read:
        scans = [line for line in plan(path, statement, parameters) if line.startswith("SCAN")]
        assert not [line for line in scans if line.split()[1] in LARGE], (statement, scans)
