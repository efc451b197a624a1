"""Flipped bit in stored data: the affected object is reported and given up or repaired, and the rest continues."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from harness import polling
from harness.client import Business
from harness.installation import Installation
from harness.sink_process import SinkProcess

pytestmark = pytest.mark.whole_system

FIRST, SECOND, THIRD, OFFLINE = "15550110000", "15550110001", "15550110002", "15550130000"
ENVIRONMENT = {"TIDINGS_ROBOTS_KINDS": "11,13", "TIDINGS_ROBOTS_PER_KIND": "3", "TIDINGS_LEASE_SECONDS": "3"}
SECONDS = 60.0


async def read_by(business: Business, sink: SinkProcess, numbers: Sequence[str], text: str) -> None:
    """Send to each number, and wait until all have read it."""
    ids = set()
    for number in numbers:
        body = {"to": number, "type": "text", "text": {"body": text}}
        ids.add((await business.check_call("POST", "/v1/messages", body))["messages"][0]["id"])
    read: set[str] = set()

    async def all_read() -> bool:
        read.update(record.message_id for record in await sink.take() if record.status == "read")
        return ids <= read

    await polling.until(all_read, seconds=SECONDS)


def flip(installation: Installation, family: str, table: str, column: str, where: str) -> None:
    """Flip a bit in the middle of one value."""
    size = f"SELECT length({column}) FROM {table} WHERE {where} LIMIT 1"
    length = installation.read_value(family, size)
    assert length, f"nothing to damage in {table}.{column}"
    value = installation.read_value(family, f"SELECT hex({column}) FROM {table} WHERE {where} LIMIT 1")
    damaged = bytearray.fromhex(value)
    damaged[len(damaged) // 2] ^= 0x10
    key = installation.read_value(family, f"SELECT rowid FROM {table} WHERE {where} LIMIT 1")
    installation.change(family, [f"UPDATE {table} SET {column} = x'{damaged.hex()}' WHERE rowid = {key}"])


async def test_damaged_data_is_reported_and_other_recipients_are_served(tmp_path: Path) -> None:
    async with (
        Installation(tmp_path, None, ENVIRONMENT) as installation,
        SinkProcess(tmp_path, installation.webhook_secret, verify_every=1) as sink,
    ):
        await installation.start()
        business = await installation.business()
        await business.set_webhook(sink.url)
        everybody = [FIRST, SECOND, THIRD, OFFLINE]
        await business.check_contacts(everybody)
        await read_by(business, sink, everybody[:3], "before")
        kept = {"to": OFFLINE, "type": "text", "text": {"body": "waits"}}
        await business.check_call("POST", "/v1/messages", kept)
        await sink.respond_with(500)
        await business.check_call("POST", "/v1/messages", {**kept, "to": THIRD})
        waiting = "SELECT COUNT(*) FROM callbacks"
        await polling.until(lambda: bool(installation.read_value("business", waiting)), seconds=SECONDS)
        await installation.stop()

        flip(installation, "business", "sessions", "receiving", f"peer = '{FIRST}'")
        flip(installation, "business", "sessions", "sending", f"peer = '{SECOND}'")
        flip(installation, "business", "messages", "kept", "kept IS NOT NULL")
        flip(installation, "business", "callbacks", "body", "1 = 1")
        flip(installation, "business", "own_prekeys", "sealed", "kind = 'one_time'")
        flip(installation, "network", "envelopes", "body", f"recipient = '{OFFLINE}'")

        await sink.respond_with(200)
        await installation.start()
        await read_by(business, sink, [THIRD], "somebody else")
        await read_by(business, sink, [FIRST, SECOND], "whose session was damaged")
        log = (tmp_path / "coreapp.log").read_text()
        for event in ("prekey.corrupt", "session.corrupt"):
            assert event in log
