"""Blobs with a client that leaves or does not read, and a database that refuses writes."""

from __future__ import annotations

import asyncio
import logging
import os
import time
from pathlib import Path
from typing import Any

import pymysql
import pytest
import sqlalchemy as sa

from harness import polling
from network.blobs.store import BlobStore, BlobSweeper
from network.errors import Full
from network.settings import Limits
from tests.conftest import DatabaseFactory
from tests.manual_clock import ManualClock
from tests.network.support import ALICE, BOB, TIMEOUT, Network
from tests.network.test_blobs import MIB, chunks, settings, upload
from tidings.objects.directory import DirectoryStore
from tidings.storage.database import Database

pytestmark = pytest.mark.parametrize("pair", [("tcp", "sqlite"), ("tcp", "mariadb")])


@pytest.fixture
async def database(database_factory: DatabaseFactory) -> Database:
    return await database_factory("network")


async def test_a_download_ends_when_the_client_disconnects(network: Network, caplog: pytest.LogCaptureFixture) -> None:
    await network.start()
    await network.register(ALICE)
    size = 32 * MIB
    _, response = await upload(network, chunks(size))
    reader, writer = await asyncio.open_connection(*network.addresses.http)
    head = f"GET /v1/blobs/{ALICE}/{response['id']} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer "
    with caplog.at_level(logging.INFO):
        writer.write(f"{head}{network.tokens[ALICE]}\r\n\r\n".encode())
        await reader.readuntil(b"\r\n\r\n")
        writer.transport.abort()

        def ends() -> list[logging.LogRecord]:
            moved = [record for record in caplog.records if record.message == "blob.moved"]
            return [record for record in moved if record.__dict__["direction"] == "out"]

        await polling.until(lambda: bool(ends()), seconds=TIMEOUT)
    (end,) = ends()
    assert end.__dict__["result"] == "cut off"
    assert end.__dict__["bytes"] < size


@pytest.fixture
def read_only(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """Database that serves reads and refuses writes, as with a full disk or after a failover."""

    async def refuse(work: Any, **more: Any) -> None:
        raise sa.exc.OperationalError("INSERT", {}, pymysql.err.OperationalError(1290, "--read-only"))

    monkeypatch.setattr(database, "persist", refuse)


@pytest.mark.usefixtures("read_only")
async def test_files_without_a_row_count_against_the_quota(database: Database, tmp_path: Path) -> None:
    files = DirectoryStore(tmp_path / "blobs")
    kept = BlobStore(database, files, ManualClock(time.time()), settings(4 * MIB))
    await kept.open()
    for _ in range(8):
        # A device repeats an upload that got a 503.
        with pytest.raises((sa.exc.OperationalError, Full)):
            await kept.add(ALICE, chunks(MIB), MIB)
    assert sum(path.stat().st_size for path in files.directory.iterdir()) <= 4 * MIB


@pytest.mark.usefixtures("read_only")
async def test_orphans_are_removed_while_the_database_refuses_writes(database: Database, tmp_path: Path) -> None:
    clock = ManualClock(time.time())
    files = DirectoryStore(tmp_path / "blobs")
    kept = BlobStore(database, files, clock, settings(MIB))
    await kept.open()
    orphan = files.directory / ("a" * 32)
    orphan.write_bytes(b"orphan")
    os.utime(orphan, (clock.now() - 3601, clock.now() - 3601))
    stop = asyncio.Event()
    sweeping = asyncio.create_task(BlobSweeper(database, kept).run(stop))
    try:
        await polling.until(lambda: not orphan.exists(), seconds=5)
    finally:
        stop.set()
        await sweeping


async def test_one_device_that_does_not_read_leaves_transfers_to_others(network: Network) -> None:
    await network.start(limits=Limits(transfers=4))
    await network.register(ALICE, BOB)
    _, response = await upload(network, chunks(32 * MIB))
    head = (
        f"GET /v1/blobs/{ALICE}/{response['id']} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {network.tokens[ALICE]}"
    )
    writers = []
    for _ in range(4):
        reader, writer = await asyncio.open_connection(*network.addresses.http, limit=1024)
        writer.write(f"{head}\r\n\r\n".encode())
        await reader.readuntil(b"\r\n\r\n")
        writers.append(writer)
    assert (await upload(network, b"of Bob", BOB))[0] == 201
    for writer in writers:
        writer.transport.abort()
