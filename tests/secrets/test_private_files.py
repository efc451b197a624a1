"""Files and directories that only their owner may read."""

from __future__ import annotations

import errno
import logging
import os
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from cli import process
from cli.child_log import ChildLog
from handset.shown_log import ShownLog
from tidings.aio.clock import SystemClock
from tidings.installation.settings import DatabaseSettings, InstallationSettings
from tidings.objects.directory import DirectoryStore
from tidings.secrets import private_files
from tidings.storage.database import Database


@pytest.fixture(autouse=True)
def _no_umask() -> Iterator[None]:
    before = os.umask(0)
    yield
    os.umask(before)


def mode(path: Path) -> int:
    return path.stat().st_mode & 0o7777


async def chunk(content: bytes = b"x") -> AsyncIterator[bytes]:
    yield content


async def test_every_created_file_is_private_whatever_the_umask(tmp_path: Path) -> None:
    data = tmp_path / "data"
    InstallationSettings.read({"TIDINGS_DATA_DIR": str(data)})
    database = Database(DatabaseSettings(f"sqlite+aiosqlite:///{data / 'business.db'}"), "business")
    async with database.transaction() as connection:
        await connection.exec_driver_sql("CREATE TABLE t (a INT)")
    ChildLog(data / "logs" / "webapp.log", print).close()
    ShownLog(data / "robots.jsonl", SystemClock()).close()
    files = DirectoryStore(data / "media")
    files.prepare()
    await files.write(chunk(), limit=9)
    with process.profiling(str(data / "profile.txt")):
        pass
    found = {path.relative_to(tmp_path).as_posix(): mode(path) for path in [data, *data.rglob("*")]}
    await database.close()
    assert {"data/business.db-wal", "data/logs/webapp.log", "data/profile.txt"} <= found.keys()
    for name, allowed in found.items():
        assert allowed == (0o700 if (tmp_path / name).is_dir() else 0o600), name


def test_loose_file_modes_are_corrected_at_start_with_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    data = tmp_path / "data"
    (data / "logs").mkdir(mode=0o755, parents=True)
    loose = [data / "business.db", data / "business.db-wal", data / "secrets.json", data / "logs" / "webapp.log"]
    for path in loose:
        path.touch(0o644)
    theirs = data / "notes.txt"
    theirs.touch(0o644)
    with caplog.at_level(logging.WARNING):
        private_files.restrict_all(data)
    assert [mode(path) for path in (data, data / "logs")] == [0o700, 0o700]
    assert {mode(path) for path in loose} == {0o600}
    assert mode(theirs) == 0o644
    mended = {vars(record)["path"] for record in caplog.records if record.message == "permissions.mended"}
    assert mended == {str(path) for path in (data, data / "logs", *loose)}
    caplog.clear()
    private_files.restrict_all(data)
    assert not caplog.records


async def test_a_loose_database_file_mode_is_corrected_in_any_directory(tmp_path: Path) -> None:
    path = tmp_path / "elsewhere.db"
    path.touch(0o666)
    database = Database(DatabaseSettings(f"sqlite+aiosqlite:///{path}"), "business")
    async with database.reading():
        assert mode(path) == 0o600
    await database.close()


def test_the_target_of_a_symbolic_link_is_not_changed(tmp_path: Path) -> None:
    theirs = tmp_path / "theirs.db"
    theirs.touch(0o644)
    data = tmp_path / "data"
    data.mkdir(mode=0o700)
    (data / "business.db").symlink_to(theirs)
    private_files.restrict_all(data)
    assert mode(theirs) == 0o644


async def test_a_group_shared_media_directory_stays_shared(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    shared = tmp_path / "media"
    shared.mkdir(mode=0o2775)
    files = DirectoryStore(shared)
    with caplog.at_level(logging.WARNING):
        files.prepare()
    stored = await files.write(chunk(), limit=9)
    assert mode(shared) & 0o777 == 0o775
    assert mode(shared / stored.name) == 0o660
    assert [record.message for record in caplog.records] == ["permissions.loose"]


def test_a_file_is_replaced_atomically(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "key"
    private_files.replace(path, b"first")
    assert (path.read_bytes(), mode(path)) == (b"first", 0o600)
    private_files.replace(path, b"second", 0o644)
    assert (path.read_bytes(), mode(path)) == (b"second", 0o644)

    def fails(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", fails)
    with pytest.raises(OSError, match="No space left") as caught:
        private_files.replace(path, b"third")
    assert (caught.value.errno, caught.value.filename) == (errno.ENOSPC, str(path))
    assert path.read_bytes() == b"second"
    assert os.listdir(tmp_path) == ["key"]
