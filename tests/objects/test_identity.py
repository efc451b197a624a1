"""A file store other than the one recorded in the database is refused, at start and later."""

from __future__ import annotations

import asyncio
import dataclasses
import os
import shutil
import time
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import pytest

from tests.conftest import DatabaseFactory
from tidings.media.errors import FileGone, StoreUnavailable
from tidings.objects.directory import DirectoryStore
from tidings.objects.identity import MEDIA, StoreIdentity, WrongStore
from tidings.objects.store import MARKER
from tidings.objects.watch import StoreWatch
from tidings.storage import file_stores
from tidings.storage.database import Connection, Database
from tidings.storage.file_stores import FileStoreRow


@dataclasses.dataclass
class Place:
    """Directory, and the database that may record it."""

    store: DirectoryStore
    identity: StoreIdentity

    @property
    def names(self) -> list[str]:
        return sorted(os.listdir(self.store.directory))


class Rows:
    """Names of files in the rows of the database."""

    names: Sequence[str] = ()

    async def __call__(self, connection: Connection) -> Sequence[str]:
        return self.names


@pytest.fixture
async def database(database_factory: DatabaseFactory) -> Database:
    return await database_factory("business")


def make(database: Database, directory: Path, rows: Rows | None = None) -> Place:
    store = DirectoryStore(directory)
    return Place(store, StoreIdentity(database, store, MEDIA, variable="TIDINGS_MEDIA_DIR", sample=rows or Rows()))


async def chunks(content: bytes) -> AsyncIterator[bytes]:
    yield content


async def test_the_first_start_writes_the_marker_and_later_starts_find_it(database: Database, tmp_path: Path) -> None:
    first = make(database, tmp_path / "media")
    assert not await first.identity.is_recorded()
    await first.identity.claim()
    assert first.names == [MARKER]
    kept = (tmp_path / "media" / MARKER).read_bytes()
    second = make(database, tmp_path / "media")
    await second.identity.claim()
    assert second.store.expected == first.store.expected
    assert (tmp_path / "media" / MARKER).read_bytes() == kept
    assert await second.identity.refresh() == ""


async def test_concurrent_starts_on_one_directory_agree_on_its_marker(database: Database, tmp_path: Path) -> None:
    places = [make(database, tmp_path / "media") for _ in range(8)]
    await asyncio.gather(*(place.identity.claim() for place in places))
    assert len({place.store.expected for place in places}) == 1
    assert [await place.identity.refresh() for place in places] == [""] * 8


async def test_one_of_two_concurrent_starts_on_different_directories_is_refused(
    database: Database, tmp_path: Path
) -> None:
    places = [make(database, tmp_path / name) for name in ("a", "b")]
    results = await asyncio.gather(*(place.identity.claim() for place in places), return_exceptions=True)
    assert sorted(isinstance(result, WrongStore) for result in results) == [False, True]


async def test_a_missing_marker_is_refused_with_an_error_that_names_the_remedy(
    database: Database, tmp_path: Path
) -> None:
    await make(database, tmp_path / "media").identity.claim()
    other = make(database, tmp_path / "not-mounted")
    with pytest.raises(WrongStore) as refused:
        await other.identity.claim()
    assert f"TIDINGS_MEDIA_DIR {tmp_path}/not-mounted has no marker file" in str(refused.value)
    assert "tidings files adopt media" in str(refused.value)
    assert other.names == []


async def test_a_start_that_ended_before_its_commit_is_resumed_by_the_next(database: Database, tmp_path: Path) -> None:
    first = make(database, tmp_path / "media")
    await first.identity.claim()
    async with database.transaction() as connection:
        await connection.execute(file_stores._table.delete().where(file_stores._table.c.name == MEDIA))
    again = make(database, tmp_path / "media")
    await again.identity.claim()
    assert again.store.expected == first.store.expected


async def test_the_directory_of_another_database_is_refused(database: Database, tmp_path: Path) -> None:
    await make(database, tmp_path / "media").identity.claim()
    async with database.transaction() as connection:
        # The state of a new database.
        await connection.execute(file_stores._table.delete())
    other = make(database, tmp_path / "media")
    with pytest.raises(WrongStore, match="the marker of another database"):
        await other.identity.claim()
    with pytest.raises(WrongStore, match="--force"):
        await other.identity.adopt(force=False)
    await other.identity.adopt(force=True)
    await make(database, tmp_path / "media").identity.claim()


async def test_an_older_database_does_not_record_a_directory_without_its_files(
    database: Database, tmp_path: Path
) -> None:
    rows = Rows()
    place = make(database, tmp_path / "media", rows)
    place.store.prepare()
    stored = await place.store.write(chunks(b"x"), limit=1)
    rows.names = ["0" * 32, stored.name]
    with pytest.raises(WrongStore, match="none of the files"):
        await make(database, tmp_path / "not-mounted", rows).identity.claim()
    await place.identity.claim()


async def test_a_missing_file_does_not_count_as_gone_while_the_marker_is_missing(
    database: Database, tmp_path: Path
) -> None:
    place = make(database, tmp_path / "media")
    await place.identity.claim()
    stored = await place.store.write(chunks(b"abc"), limit=10)
    with pytest.raises(FileGone):
        place.store.open_file("0" * 32)
    (tmp_path / "media").rename(tmp_path / "away")
    for there in (False, True):
        if there:
            # An empty mount point.
            (tmp_path / "media").mkdir()
        with pytest.raises(StoreUnavailable):
            place.store.open_file(stored.name)
        with pytest.raises(OSError):
            await place.store.write(chunks(b"abc"), limit=10)
        with pytest.raises(StoreUnavailable):
            assert [names async for names in place.store.list_old(time.time() + 1)] == []
    assert os.listdir(tmp_path / "media") == []
    shutil.rmtree(tmp_path / "media")
    (tmp_path / "away").rename(tmp_path / "media")
    with place.store.open_file(stored.name) as file:
        assert file.read() == b"abc"


async def test_a_directory_that_disappears_during_a_write_keeps_nothing(database: Database, tmp_path: Path) -> None:
    place = make(database, tmp_path / "media")
    await place.identity.claim()
    with place.store.draft(limit=2**30) as draft:
        draft.write(bytes(300_000))
        (tmp_path / "media").rename(tmp_path / "away")
        (tmp_path / "media").mkdir()
        with pytest.raises(StoreUnavailable):
            draft.keep()
    assert os.listdir(tmp_path / "media") == []


async def test_the_watch_detects_a_lost_a_restored_and_an_adopted_directory(database: Database, tmp_path: Path) -> None:
    place = make(database, tmp_path / "media")
    await place.identity.claim()
    watch = StoreWatch(place.identity)
    await watch.run_once()
    assert watch.state == "ok"
    (tmp_path / "media").rename(tmp_path / "away")
    (tmp_path / "media").mkdir()
    await watch.run_once()
    assert watch.state == "away"
    await make(database, tmp_path / "media").identity.adopt(force=False)
    await watch.run_once()
    assert watch.state == "ok"
    await place.store.write(chunks(b"abc"), limit=10)
    # The old directory is no longer the recorded one.
    with pytest.raises(WrongStore, match="records another"):
        await make(database, tmp_path / "away").identity.claim()


async def test_an_unreadable_marker_matches_no_store(database: Database, tmp_path: Path) -> None:
    place = make(database, tmp_path / "media")
    await place.identity.claim()
    for content in (b"", b"\xff\xfe", b'{"store": 1}', b'{"store": "media"}'):
        (tmp_path / "media" / MARKER).write_bytes(content)
        assert "another database" in await place.identity.refresh()


async def test_file_store_rows_are_kept_by_name(database: Database) -> None:
    async with database.transaction() as connection:
        await file_stores.add(connection, FileStoreRow("media", "first", 1))
        await file_stores.add(connection, FileStoreRow("media", "second", 2))
        assert await file_stores.find(connection, "media") == FileStoreRow("media", "first", 1)
        await file_stores.replace(connection, FileStoreRow("media", "second", 2))
        assert await file_stores.find(connection, "media") == FileStoreRow("media", "second", 2)
        assert await file_stores.find(connection, "blobs") is None
