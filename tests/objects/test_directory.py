"""A file is in the directory completely or not at all."""

from __future__ import annotations

import asyncio
import errno
import hashlib
import os
import resource
import subprocess
import sys
import threading
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tidings.media.errors import DiskFull, FileEmpty, FileGone, FileTooLarge, StoreUnavailable, UnusableType
from tidings.objects.directory import DirectoryStore
from tidings.objects.store import BLOCK

BIG = 10**9


@pytest.fixture
def files(tmp_path: Path) -> DirectoryStore:
    made = DirectoryStore(tmp_path / "media")
    made.prepare()
    return made


async def chunks(*parts: bytes) -> AsyncIterator[bytes]:
    for part in parts:
        yield part


async def names(files: DirectoryStore) -> list[str]:
    return [name async for page in files.list_old(BIG * 10) for name in page]


@pytest.mark.parametrize("size", [1, BLOCK - 1, BLOCK, BLOCK + 1, 3 * BLOCK + 7])
async def test_a_written_file_reads_back_unchanged(files: DirectoryStore, size: int) -> None:
    content = os.urandom(size)
    stored = await files.write(chunks(*(content[at : at + 50_000] for at in range(0, size, 50_000))), limit=size)
    assert (stored.size, stored.sha256) == (size, hashlib.sha256(content).hexdigest())
    with files.open_file(stored.name) as file:
        assert file.read() == content
    assert await names(files) == [stored.name]
    assert (files.path(stored.name).stat().st_mode & 0o777, files.directory.stat().st_mode & 0o777) == (0o600, 0o700)


async def test_two_files_with_the_same_bytes_get_different_names(files: DirectoryStore) -> None:
    one, other = await asyncio.gather(*(files.write(chunks(b"x"), limit=1) for _ in range(2)))
    assert one.name != other.name
    assert len(await names(files)) == 2


async def test_a_file_over_the_limit_leaves_nothing_in_the_directory(files: DirectoryStore) -> None:
    for size in (11, BLOCK * 2):
        with pytest.raises(FileTooLarge) as caught:
            await files.write(chunks(*[b"x" * 10] * (size // 10 + 1)), limit=size)
        assert caught.value.limit == size
    assert os.listdir(files.directory) == []


async def test_an_empty_file_is_rejected(files: DirectoryStore) -> None:
    with pytest.raises(FileEmpty):
        await files.write(chunks(b"", b""), limit=10)
    assert os.listdir(files.directory) == []


async def test_the_check_receives_the_beginning_before_anything_is_written(files: DirectoryStore) -> None:
    seen: list[bytes] = []

    def refuse(head: bytes) -> None:
        seen.append(head)
        assert os.listdir(files.directory) == []
        raise UnusableType("no")

    for content in ([b"ab", b"c"], [b"x" * BLOCK] * 3):
        with pytest.raises(UnusableType):
            await files.write(chunks(*content), limit=BIG, check=refuse)
    assert seen == [b"abc", b"x" * BLOCK]
    assert os.listdir(files.directory) == []


async def test_a_failing_source_leaves_nothing_in_the_directory(files: DirectoryStore) -> None:
    async def broken() -> AsyncIterator[bytes]:
        yield b"x" * (2 * BLOCK)
        assert len(os.listdir(files.directory)) == 1
        raise ConnectionResetError

    with pytest.raises(ConnectionResetError):
        await files.write(broken(), limit=BIG)
    assert os.listdir(files.directory) == []


async def test_a_cancelled_writer_leaves_nothing_in_the_directory(files: DirectoryStore) -> None:
    written = asyncio.Event()

    async def endless() -> AsyncIterator[bytes]:
        yield b"x" * BLOCK
        written.set()
        await asyncio.Event().wait()

    task = asyncio.create_task(files.write(endless(), limit=BIG))
    await written.wait()
    assert len(os.listdir(files.directory)) == 1
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert os.listdir(files.directory) == []


async def test_a_writer_cancelled_twice_waits_for_its_thread(files: DirectoryStore) -> None:
    loop, begun, go_on = asyncio.get_running_loop(), asyncio.Event(), threading.Event()

    def slow(first: bytes) -> None:
        """Block the writing thread before it creates the file."""
        loop.call_soon_threadsafe(begun.set)
        go_on.wait(5)

    task = asyncio.create_task(files.write(chunks(b"x" * BLOCK), limit=BIG, check=slow))
    await begun.wait()
    for _ in range(2):
        task.cancel()
        for _ in range(3):
            await asyncio.sleep(0)
    assert not task.done()
    go_on.set()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert os.listdir(files.directory) == []


async def test_a_writer_cancelled_while_its_file_is_synced_leaves_nothing(
    files: DirectoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    loop, syncing, go_on = asyncio.get_running_loop(), asyncio.Event(), threading.Event()

    def slow(_: int) -> None:
        loop.call_soon_threadsafe(syncing.set)
        go_on.wait(60)

    monkeypatch.setattr(os, "fsync", slow)
    task = asyncio.create_task(files.write(chunks(b"x"), limit=BIG))
    await syncing.wait()
    task.cancel()
    await asyncio.sleep(0)
    go_on.set()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert os.listdir(files.directory) == []


async def test_a_write_that_needs_the_reserve_fails_as_disk_full(files: DirectoryStore) -> None:
    full = DirectoryStore(files.directory, reserve=2**62)
    assert full.free() == 0
    assert files.free() > 0
    with pytest.raises(DiskFull):
        await full.write(chunks(b"x"), limit=10)
    assert os.listdir(files.directory) == []


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT])
async def test_a_disk_full_at_fsync_leaves_nothing(
    files: DirectoryStore, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    def full(descriptor: int) -> None:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(DiskFull):
        await files.write(chunks(b"x"), limit=10)
    monkeypatch.undo()
    assert os.listdir(files.directory) == []


def test_a_file_size_limit_of_the_system_is_reported_as_disk_full(files: DirectoryStore) -> None:
    program = """
import sys
from pathlib import Path
from tidings.media.errors import DiskFull
from tidings.objects.directory import DirectoryStore
try:
    with DirectoryStore(Path(sys.argv[1])).draft(limit=10**9) as draft:
        for _ in range(64):
            draft.write(b"x" * 65536)
        draft.keep()
except DiskFull:
    print("full")
"""

    def limited() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (1_000_000, 1_000_000))

    done = subprocess.run(
        [sys.executable, "-c", program, str(files.directory)],
        preexec_fn=limited,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == "full"
    assert os.listdir(files.directory) == []


async def test_deletion_is_repeatable_and_an_open_file_stays_readable(files: DirectoryStore) -> None:
    stored = await files.write(chunks(b"abc"), limit=10)
    with files.open_file(stored.name) as file:
        assert await files.delete([stored.name, "0" * 32]) == 1
        assert await files.delete([stored.name]) == 0
        assert file.read() == b"abc"
    with pytest.raises(FileGone):
        files.open_file(stored.name)


@pytest.mark.parametrize("name", ["", "..", "../secrets.json", "a/b", ".part", "/etc/passwd", "a\0b"])
async def test_a_name_cannot_lead_out_of_the_directory(files: DirectoryStore, name: str) -> None:
    with pytest.raises(FileGone):
        files.path(name)
    assert await files.delete([name]) == 0


async def test_only_old_files_and_old_unfinished_files_are_listed(files: DirectoryStore) -> None:
    old = [(await files.write(chunks(b"x"), limit=1)).name for _ in range(3)]
    unfinished = files.directory / ("0" * 32 + ".part")
    unfinished.write_bytes(b"x")
    for name in (*old, unfinished.name):
        os.utime(files.directory / name, (1000, 1000))
    await files.write(chunks(b"x"), limit=1)
    (files.directory / "directory").mkdir()
    listed = [name async for page in files.list_old(1001) for name in page]
    assert sorted(listed) == sorted([*old, unfinished.name])
    assert await files.delete(listed) == 4


def test_only_a_kept_draft_leaves_a_file(files: DirectoryStore) -> None:
    with files.draft(limit=BIG) as draft:
        draft.write(b"x" * (2 * BLOCK))
        assert len(os.listdir(files.directory)) == 1
    assert os.listdir(files.directory) == []
    with files.draft(limit=BIG) as draft:
        draft.write(b"x")
        stored = draft.keep()
    assert os.listdir(files.directory) == [stored.name]


@pytest.mark.parametrize(
    "planted", ["a link to a file", "a link to a directory", "a dangling link", "a pipe", "a directory"]
)
async def test_a_planted_link_pipe_or_directory_is_not_read(
    files: DirectoryStore, tmp_path: Path, planted: str
) -> None:
    """The directory is shared: other users who may write there cannot make a process read other files."""
    secret = tmp_path / "master.key"
    secret.write_bytes(b"secret")
    stored = await files.write(chunks(b"content"), limit=BIG)
    path = files.path(stored.name)
    path.unlink()
    match planted:
        case "a link to a file":
            path.symlink_to(secret)
        case "a link to a directory":
            path.symlink_to(tmp_path)
        case "a dangling link":
            path.symlink_to(tmp_path / "nothing")
        case "a pipe":
            os.mkfifo(path)
        case _:
            path.mkdir()
    with pytest.raises(FileGone):
        async with asyncio.timeout(30):
            await files.open(stored.name)
    assert secret.read_bytes() == b"secret"


async def test_deleting_a_planted_link_spares_its_target(files: DirectoryStore, tmp_path: Path) -> None:
    secret = tmp_path / "master.key"
    secret.write_bytes(b"secret")
    files.path("a" * 32).symlink_to(secret)
    assert await files.delete(["a" * 32]) == 1
    assert not files.path("a" * 32).is_symlink()
    assert secret.read_bytes() == b"secret"


async def test_a_planted_link_is_neither_listed_as_old_nor_written_through(
    files: DirectoryStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    secret = tmp_path / "master.key"
    secret.write_bytes(b"secret")
    files.path("b" * 32).symlink_to(secret)
    assert await names(files) == []
    monkeypatch.setattr("secrets.token_hex", lambda size: "c" * 2 * size)
    (files.directory / f"{'c' * 32}.part").symlink_to(secret)
    with pytest.raises(StoreUnavailable):
        await files.write(chunks(b"content"), limit=BIG)
    assert secret.read_bytes() == b"secret"
