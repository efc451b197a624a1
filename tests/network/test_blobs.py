"""Encrypted files that devices store on the network: stored wholly or not at all, with a lifetime and a quota."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from harness import polling
from network.blobs import routes, store
from network.blobs.store import CHUNK, BlobStore, BlobSweeper
from network.errors import CannotStore, Full, TooLarge
from network.settings import BlobSettings, Limits
from tests.conftest import DatabaseFactory
from tests.manual_clock import ManualClock
from tests.network.support import ALICE, BOB, REGISTRATION_KEY, TIMEOUT, Network
from tests.network.test_outages import PROCESS
from tidings.aio import crashpoints
from tidings.objects.directory import DirectoryStore
from tidings.objects.identity import WrongStore
from tidings.objects.store import MARKER
from tidings.storage.database import Database
from tidings.storage.network import blobs
from tidings.wire import device

MIB = 1024 * 1024
TTL = 14 * 86400


@pytest.fixture
def pair(database_engine: str) -> tuple[str, str]:
    return "tcp", database_engine


@pytest.fixture(params=["sqlite", "mariadb"])
def database_engine(request: pytest.FixtureRequest) -> str:
    return str(request.param)


async def chunks(size: int, *, then: BaseException | None = None) -> AsyncIterator[bytes]:
    """Yield `size` bytes, without a declared length.

    then: error to raise after the last chunk; None for none.
    """
    block = bytes(64 * 1024)
    for start in range(0, size, len(block)):
        yield block[: size - start]
    if then is not None:
        raise then


async def upload(network: Network, data: Any, number: str = ALICE, **headers: str) -> tuple[int, dict[str, Any]]:
    headers["Authorization"] = f"Bearer {network.tokens[number]}"
    async with network.http.post(f"/v1/blobs/{number}", data=data, headers=headers) as response:
        return response.status, await response.json()


async def download(network: Network, id: str, number: str = BOB) -> tuple[int, bytes]:
    headers = {"Authorization": f"Bearer {network.tokens[number]}"}
    async with network.http.get(f"/v1/blobs/{number}/{id}", headers=headers) as response:
        return response.status, await response.read()


def names(network: Network) -> list[str]:
    """Return the names of the files in the directory, without its marker."""
    return sorted(path.name for path in network.blobs.directory.iterdir() if path.name != MARKER)


async def rows(network: Network) -> set[str]:
    """Return the names of the files that have a row."""
    database = Database(network.database, "network")
    try:
        async with database.reading() as connection:
            return await blobs.list_files(connection, names(network))
    finally:
        await database.close()


async def test_a_blob_uploaded_by_one_device_is_fetched_by_another(network: Network) -> None:
    await network.start()
    await network.register(ALICE, BOB)
    data = os.urandom(3 * MIB + 1)
    before = time.time()
    status, response = await upload(network, data)
    assert status == 201
    assert set(response) == {"id", "size", "expires_at"}
    assert response["size"] == len(data)
    assert before + TTL - 1 <= response["expires_at"] <= time.time() + TTL
    assert await rows(network) == set(names(network))
    headers = {"Authorization": f"Bearer {network.tokens[BOB]}"}
    async with network.http.get(f"/v1/blobs/{BOB}/{response['id']}", headers=headers) as got:
        assert (got.status, got.headers["Content-Length"]) == (200, str(len(data)))
        assert got.headers["Content-Type"] == "application/octet-stream"
        assert await got.read() == data
    # The file still exists after a restart of the network, and still counts against the quota.
    await network.stop()
    await network.start(blobs=BlobSettings(directory=network.blobs.directory, quota=4 * MIB))
    assert await download(network, response["id"], ALICE) == (200, data)
    assert (await upload(network, data))[0] == 507


async def test_a_body_of_unknown_length_is_accepted(network: Network) -> None:
    await network.start()
    await network.register(ALICE, BOB)
    status, response = await upload(network, chunks(MIB + 7))
    assert (status, response["size"]) == (201, MIB + 7)
    assert await download(network, response["id"]) == (200, bytes(MIB + 7))


async def test_a_content_length_over_the_limit_is_refused_before_reading_the_body(network: Network) -> None:
    await network.start()
    await network.register(ALICE)
    reader, writer = await asyncio.open_connection(*network.addresses.http)
    head = f"POST /v1/blobs/{ALICE} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {network.tokens[ALICE]}\r\n"
    writer.write(f"{head}Content-Length: {store.MAX_SIZE + 1}\r\n\r\n".encode())
    async with asyncio.timeout(TIMEOUT):
        assert b" 413 " in await reader.readline()
    writer.close()


async def test_an_empty_body_is_refused(network: Network) -> None:
    await network.start()
    await network.register(ALICE)
    status, response = await upload(network, b"")
    assert (status, response["error"]["reason"]) == (400, "invalid")
    assert names(network) == []


@pytest.mark.parametrize("announced", [True, False])
async def test_an_interrupted_upload_leaves_nothing(network: Network, announced: bool) -> None:
    await network.start()
    await network.register(ALICE)
    _, writer = await asyncio.open_connection(*network.addresses.http)
    head = f"POST /v1/blobs/{ALICE} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {network.tokens[ALICE]}\r\n"
    if announced:
        writer.write(f"{head}Content-Length: {2 * MIB}\r\n\r\n".encode() + bytes(MIB))
    else:
        writer.write(f"{head}Transfer-Encoding: chunked\r\n\r\n{MIB:x}\r\n".encode() + bytes(MIB) + b"\r\n")
    await writer.drain()
    await until(lambda: names(network) != [])
    writer.close()
    await until(lambda: names(network) == [])
    assert (await upload(network, b"more"))[0] == 201


async def until(condition: Any) -> None:
    """Poll for a condition: files are created and deleted in threads of the network, which give no signal to
    wait for."""
    await polling.until(condition, seconds=TIMEOUT, pause=0.01)


async def test_only_devices_upload_and_fetch_blobs(network: Network) -> None:
    await network.start()
    await network.register(ALICE, BOB)
    _, response = await upload(network, b"ciphertext")
    alice, bob = network.tokens[ALICE], network.tokens[BOB]
    for method, path in (("POST", f"/v1/blobs/{ALICE}"), ("GET", f"/v1/blobs/{ALICE}/{response['id']}")):
        for token in ("", "wrong", bob, REGISTRATION_KEY):
            status, error = await network.request(method, path, token=token)
            assert (status, error["error"]["reason"]) == (401, "unauthorized")
    for path in ("/v1/blobs/alice", "/v1/blobs/%2e%2e"):
        assert (await network.request("POST", path, token=alice))[0] == 404
    for id in ("x" * 43, "x" * 4000, "..%2f..%2fetc%2fpasswd", "%00", "é", names(network)[0]):
        status, error = await network.request("GET", f"/v1/blobs/{ALICE}/{id}", token=alice)
        assert (status, error["error"]["reason"]) == (404, "not_found")
    assert len(names(network)) == 1


async def test_a_full_directory_is_reported_until_a_blob_expires(
    network: Network, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock, run_once, has_counted = ManualClock(time.time()), BlobSweeper.run_once, asyncio.Event()

    async def count(sweeper: BlobSweeper) -> int:
        removed = await run_once(sweeper)
        has_counted.set()
        return removed

    monkeypatch.setattr(BlobSweeper, "run_once", count)
    await network.start(clock=clock, blobs=BlobSettings(directory=network.blobs.directory, quota=1000, ttl=10))
    # The first count may miss a blob that is committed meanwhile.
    await asyncio.wait_for(has_counted.wait(), TIMEOUT)
    await network.register(ALICE, BOB)
    _, first = await upload(network, bytes(600))
    for data in (bytes(401), chunks(401)):
        status, response = await upload(network, data)
        assert (status, response["error"]["reason"]) == (507, "full")
    assert len(names(network)) == 1
    assert (await upload(network, bytes(400), number=BOB))[0] == 201
    # Readers no longer find an expired file at once; its bytes are free after the next pass.
    clock.advance(11)
    assert (await download(network, first["id"]))[0] == 404
    await network.stop()
    await network.start(clock=clock, blobs=BlobSettings(directory=network.blobs.directory, quota=1000, ttl=10))
    await until(lambda: names(network) == [])
    await until_taken(network)


async def until_taken(network: Network) -> None:
    async def is_taken() -> bool:
        return (await upload(network, bytes(1000)))[0] == 201

    await polling.until(is_taken, seconds=TIMEOUT, pause=0.01)


async def test_the_log_records_the_result_of_each_upload(network: Network, caplog: pytest.LogCaptureFixture) -> None:
    await network.start()
    await network.register(ALICE)
    caplog.set_level("INFO", logger=routes.log.name)
    assert (await upload(network, b"x"))[0] == 201
    assert (await upload(network, b""))[0] == 400

    shutil.rmtree(network.blobs.directory)
    assert (await upload(network, b"x"))[0] == 503
    moved = [vars(record) for record in caplog.records if record.message == "blob.moved"]
    assert [(entry["result"], entry["bytes"]) for entry in moved] == [("stored", 1), ("invalid", 0), ("unavailable", 0)]


async def test_transfers_over_the_limit_are_refused_with_retry_after(network: Network) -> None:
    await network.start(limits=Limits(transfers=1))
    await network.register(ALICE, BOB)
    go = asyncio.Event()

    async def slow() -> AsyncIterator[bytes]:
        yield bytes(MIB)
        await go.wait()
        yield b"end"

    first = asyncio.create_task(upload(network, slow()))
    await until(lambda: names(network) != [])
    headers = {"Authorization": f"Bearer {network.tokens[BOB]}"}
    async with network.http.post(f"/v1/blobs/{BOB}", data=b"x", headers=headers) as response:
        assert (response.status, response.headers["Retry-After"]) == (503, "1")
    go.set()
    status, stored = await first
    assert status == 201
    # Whatever the outcome of the request was, its slot is free again.
    for _ in range(3):
        assert (await download(network, stored["id"]))[0] == 200
        assert (await upload(network, b""))[0] == 400


async def test_a_stalled_transfer_is_ended_and_a_slow_one_is_not(
    network: Network, monkeypatch: pytest.MonkeyPatch
) -> None:
    await network.start()
    await network.register(ALICE)
    monkeypatch.setattr(routes, "SILENCE_SECONDS", 1.0)
    monkeypatch.setattr("network.http.TIMEOUT", 0.5)

    async def slow() -> AsyncIterator[bytes]:
        for _ in range(4):
            yield b"x"
            await asyncio.sleep(0.3)

    assert (await upload(network, slow()))[0] == 201

    async def still() -> AsyncIterator[bytes]:
        yield bytes(MIB)
        await asyncio.sleep(60)

    status, response = await upload(network, still())
    assert (status, response["error"]["reason"]) == (503, "unavailable")
    assert len(names(network)) == 1


async def test_a_crash_between_file_and_row_leaves_an_orphan_that_is_removed_later(
    database_factory: DatabaseFactory, network: Network
) -> None:
    await network.start()
    await network.register(ALICE, BOB)
    await network.stop()
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", PROCESS, network.database.url, REGISTRATION_KEY, network.blobs.directory,
        stdout=asyncio.subprocess.PIPE, env={**os.environ, "TIDINGS_CRASH_AT": crashpoints.AFTER_FILE_BEFORE_ROW},
    )  # fmt: skip
    try:
        assert process.stdout is not None
        async with asyncio.timeout(TIMEOUT):
            http, _ = json.loads(await process.stdout.readline())
        reader, writer = await asyncio.open_connection(*http)
        head = f"POST /v1/blobs/{ALICE} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {network.tokens[ALICE]}\r\n"
        writer.write(f"{head}Content-Length: 4\r\n\r\nblob".encode())
        async with asyncio.timeout(TIMEOUT):
            assert await reader.read() == b""
            await process.wait()
        writer.close()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    (orphan,) = names(network)
    assert await rows(network) == set()
    long_ago = time.time() - 2 * store.ORPHAN_SECONDS
    os.utime(network.blobs.directory / orphan, (long_ago, long_ago))
    # The first pass after a start searches for orphans.
    await network.start()
    await until(lambda: names(network) == [])


@pytest.fixture
async def database(database_factory: DatabaseFactory) -> Database:
    return await database_factory("network")


def settings(quota: int, ttl: int = 10) -> BlobSettings:
    return BlobSettings(directory=Path("elsewhere"), quota=quota, device_quota=2**40, ttl=ttl)


async def test_the_sweeper_removes_only_expired_blobs_and_old_orphans(database: Database, tmp_path: Path) -> None:
    clock = ManualClock(time.time())
    files = DirectoryStore(tmp_path / "blobs")
    kept = BlobStore(database, files, clock, settings(MIB, 7200))
    await kept.open()
    sweep = BlobSweeper(database, kept, batch=2)
    old = [await kept.add(ALICE, chunks(100), 100) for _ in range(5)]
    clock.advance(3601)
    new = await kept.add(BOB, chunks(50), None)
    os.utime(files.path(new.file), (clock.now(), clock.now()))
    for name, age in (("a" * 32, 3601), ("b" * 32 + ".part", 3601), ("c" * 32, 3599), ("d" * 32 + ".part", 10)):
        (files.directory / name).write_bytes(b"orphan")
        os.utime(files.directory / name, (clock.now() - age, clock.now() - age))
    assert kept.quota.stored == 550

    # Files that are older than any upload stay if they have a row.
    assert await sweep.remove_orphans() == 2
    assert {path.name for path in files.directory.iterdir()} == {
        *(blob.file for blob in [*old, new]), "c" * 32, "d" * 32 + ".part",
    }  # fmt: skip
    assert await sweep.run_once() == 0
    clock.advance(3600)
    assert await sweep.run_once() == 5
    assert kept.quota.stored == 50
    found = await kept.fetch(new.id)
    await found.file.close()
    assert (found.blob, found.head) == (new, bytes(50))
    async with database.reading() as connection:
        assert await blobs.find(connection, [gone.id for gone in old], now=0) == {}


@pytest.mark.parametrize("announced", [True, False])
async def test_a_body_over_the_limit_is_refused_and_leaves_nothing(
    database: Database, tmp_path: Path, announced: bool
) -> None:
    kept = BlobStore(
        database,
        DirectoryStore(tmp_path / "blobs"),
        ManualClock(time.time()),
        settings(4 * MIB),
        max_size=MIB,
    )
    await kept.open()
    with pytest.raises(TooLarge):
        await kept.add(ALICE, chunks(MIB + 1), MIB + 1 if announced else None)
    assert os.listdir(tmp_path / "blobs") == []
    await kept.add(ALICE, chunks(MIB), MIB if announced else None)


async def test_a_full_disk_is_reported_like_a_full_directory(database: Database, tmp_path: Path) -> None:
    full = DirectoryStore(tmp_path / "blobs", reserve=2**62)
    kept = BlobStore(database, full, ManualClock(time.time()), settings(MIB))
    await kept.open()
    with pytest.raises(Full) as refused:
        await kept.add(ALICE, chunks(11), 11)
    assert (refused.value.status, refused.value.reason) == (507, "full")
    assert os.listdir(full.directory) == []


async def test_a_started_download_completes_after_expiry(database: Database, tmp_path: Path) -> None:
    clock = ManualClock(time.time())
    kept = BlobStore(database, DirectoryStore(tmp_path / "blobs"), clock, settings(MIB))
    await kept.open()
    blob = await kept.add(ALICE, chunks(CHUNK + 100), CHUNK + 100)
    found = await kept.fetch(blob.id)
    clock.advance(11)
    assert await BlobSweeper(database, kept).run_once() == 1
    assert found.head + await found.file.read(CHUNK) == bytes(CHUNK + 100)
    await found.file.close()


async def test_the_quota_of_a_failed_upload_is_refunded(database: Database, tmp_path: Path) -> None:
    kept = BlobStore(database, DirectoryStore(tmp_path / "blobs"), ManualClock(time.time()), settings(100))
    await kept.open()
    for size in (90, None):
        with pytest.raises(ConnectionResetError):
            await kept.add(ALICE, chunks(80, then=ConnectionResetError()), size)
    await kept.add(ALICE, chunks(100), 100)


async def test_a_blob_stored_during_a_count_is_counted(
    database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = BlobStore(database, DirectoryStore(tmp_path / "blobs"), ManualClock(time.time()), settings(MIB))
    await kept.open()
    query = database.query

    async def slow(work: Any, **more: Any) -> Any:
        found = await query(work, **more)
        if work is blobs.total_size:
            await kept.add(ALICE, chunks(100), 100)
        return found

    monkeypatch.setattr(database, "query", slow)
    await kept.count()
    assert kept.quota.stored == 100
    monkeypatch.undo()
    await kept.count()
    assert kept.quota.stored == 100


async def test_concurrent_blobs_share_transactions_and_owners_are_counted_once(
    database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = BlobStore(database, DirectoryStore(tmp_path / "blobs"), ManualClock(time.time()), settings(MIB))
    await kept.open()
    await kept.add(ALICE, chunks(100), 100)
    calls: list[str] = []
    persist, query = database.persist, database.query

    def noted(name: str, call: Any) -> Any:
        return lambda work, **more: calls.append(name) or call(work, **more)

    monkeypatch.setattr(database, "persist", noted("persist", persist))
    monkeypatch.setattr(database, "query", noted("query", query))
    added = await asyncio.gather(*(kept.add(ALICE, chunks(100), 100) for _ in range(20)))
    assert calls.count("query") == 0
    assert calls.count("persist") < 20
    calls.clear()
    for found in await asyncio.gather(*(kept.fetch(blob.id) for blob in added)):
        await found.file.close()
        assert found.head == bytes(100)
    assert calls == ["query"]
    assert kept.quota.stored == 2100


async def test_a_directory_that_cannot_be_created_is_one_clear_error(network: Network, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(CannotStore, match=r"TIDINGS_NETWORK_BLOB_DIR .*Not a directory"):
        await network.start(blobs=BlobSettings(directory=tmp_path / "file" / "blobs"))


async def test_messages_flow_during_an_upload(network: Network) -> None:
    await network.start()
    await network.register(ALICE, BOB)
    alice, bob = await network.connect(ALICE), await network.connect(BOB)
    uploads = [asyncio.create_task(upload(network, chunks(20 * MIB))) for _ in range(2)]
    for n in range(20):
        alice.send(ALICE, BOB, f"m{n}", kind=device.MESSAGE)
        bob.ack(*await bob.deliveries(1))
        await alice.accepted(1)
    assert [status for status, _ in await asyncio.gather(*uploads)] == [201, 201]


async def test_an_unmounted_directory_does_not_make_blobs_count_as_gone(network: Network) -> None:
    await network.start()
    await network.register(ALICE, BOB)
    status, response = await upload(network, b"x" * 1000)
    assert status == 201
    directory = network.blobs.directory
    away = directory.with_name(directory.name + "-away")
    directory.rename(away)
    directory.mkdir()
    assert (await download(network, response["id"]))[0] == 503
    status, refusal = await upload(network, b"y")
    assert (status, refusal["error"]["reason"]) == (503, "unavailable")

    async def state() -> tuple[int, str]:
        async with network.http.get("/health/ready") as found:
            return found.status, (await found.json())["blobs"]

    async def is_away() -> bool:
        return await state() == (503, "away")

    async def is_back() -> bool:
        return await state() == (200, "ok")

    await polling.until(is_away)
    assert list(directory.iterdir()) == []
    directory.rmdir()
    away.rename(directory)
    await polling.until(is_back)
    assert await download(network, response["id"]) == (200, b"x" * 1000)


async def test_a_node_with_a_different_blob_directory_does_not_start(network: Network, tmp_path: Path) -> None:
    await network.start()
    await network.stop()
    shared, network.blobs = network.blobs, network.blobs.model_copy(update={"directory": tmp_path / "blobs"})
    with pytest.raises(WrongStore, match="tidings files adopt blobs"):
        await network.start()
    network.blobs = shared
    await network.start()
