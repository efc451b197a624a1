"""Webapp killed during an upload: a file whose upload got a response is on disk, any other is at most an orphan."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import psutil

from tests.media_samples import PNG
from tests.webapp.conftest import PASSWORD, basic
from tidings.aio import crashpoints
from tidings.installation.settings import DatabaseSettings
from tidings.media import kinds
from tidings.objects.store import MARKER
from tidings.storage.business import media
from tidings.storage.database import Database

TIMEOUT = 60.0  # seconds
MIB = 1024 * 1024


def stored(directory: Path) -> list[str]:
    """Return the files in the directory, without its marker."""
    return [name for name in os.listdir(directory) if name != MARKER]


@contextlib.asynccontextmanager
async def webapp(directory: Path, **variables: str) -> AsyncIterator[tuple[asyncio.subprocess.Process, str]]:
    """Yield the process and its URL. The process is killed at the end."""
    reading, writing = os.pipe()
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *("-m", "cli.main", "webapp", "--ready-fd", str(writing)),
        pass_fds=[writing],
        stderr=asyncio.subprocess.DEVNULL,
        env={
            **os.environ,
            "TIDINGS_EMBEDDED": "1",
            "TIDINGS_DATA_DIR": str(directory),
            "TIDINGS_API_ADDRESS": "127.0.0.1:0",
            **variables,
        },
    )
    os.close(writing)
    try:
        with os.fdopen(reading) as pipe:
            async with asyncio.timeout(TIMEOUT):
                ready = await asyncio.to_thread(pipe.readline)
        yield process, json.loads(ready)["url"]
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


@contextlib.asynccontextmanager
async def logged_in(url: str) -> AsyncIterator[httpx.AsyncClient]:
    async with httpx.AsyncClient(base_url=url, timeout=TIMEOUT, trust_env=False) as http:
        response = await http.post("/v1/users/login", headers=basic("admin", PASSWORD))
        if response.status_code != 200:
            response = await http.post(
                "/v1/users/login", headers=basic("admin", "secret"), json={"new_password": PASSWORD}
            )
        http.headers["Authorization"] = "Bearer " + response.json()["users"][0]["token"]
        yield http


async def known_files(directory: Path) -> set[str]:
    database = Database(DatabaseSettings(f"sqlite+aiosqlite:///{directory}/business.db"), "business")
    async with database.reading() as connection:
        found = await media.list_known_files(connection, stored(directory / "media"))
    await database.close()
    return found


async def test_a_kill_between_file_and_row_leaves_an_orphan_and_keeps_acknowledged_uploads(tmp_path: Path) -> None:
    crash = f"{crashpoints.AFTER_FILE_BEFORE_ROW}:2"
    async with webapp(tmp_path, TIDINGS_CRASH_AT=crash) as (process, url), logged_in(url) as http:
        response = await http.post("/v1/media", content=PNG, headers={"Content-Type": "image/png"})
        [uploaded] = response.json()["media"]
        with contextlib.suppress(httpx.TransportError):
            await http.post("/v1/media", content=PNG, headers={"Content-Type": "image/png"})
            raise AssertionError("it should have died")
        async with asyncio.timeout(TIMEOUT):
            await process.wait()
    assert len(stored(tmp_path / "media")) == 2
    assert len(await known_files(tmp_path)) == 1
    async with webapp(tmp_path) as (_, url), logged_in(url) as http:
        assert (await http.get(f"/v1/media/{uploaded['id']}")).content == PNG
        response = await http.post("/v1/media", content=PNG, headers={"Content-Type": "image/png"})
        assert response.status_code == 200


async def test_an_unusable_media_directory_is_reported(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *("-m", "cli.main", "webapp"),
        stderr=asyncio.subprocess.PIPE,
        env={
            **os.environ,
            "TIDINGS_EMBEDDED": "1",
            "TIDINGS_DATA_DIR": str(tmp_path / "data"),
            "TIDINGS_API_ADDRESS": "127.0.0.1:0",
            "TIDINGS_MEDIA_DIR": str(tmp_path / "file"),
        },
    )
    async with asyncio.timeout(TIMEOUT):
        _, said = await process.communicate()
    assert process.returncode
    assert b"TIDINGS_MEDIA_DIR" in said
    async with (
        webapp(tmp_path / "data", TIDINGS_MEDIA_DIR=str(tmp_path / "elsewhere")) as (_, url),
        logged_in(url) as http,
    ):
        await http.post("/v1/media", content=PNG, headers={"Content-Type": "image/png"})
    assert len(stored(tmp_path / "elsewhere")) == 1


async def test_uploading_and_downloading_a_large_file_uses_little_memory(tmp_path: Path) -> None:
    size = kinds.LIMITS[kinds.DOCUMENT]
    block = os.urandom(MIB)

    async def chunks() -> AsyncIterator[bytes]:
        for _ in range(size // MIB):
            yield block

    async with webapp(tmp_path) as (process, url), logged_in(url) as http:
        watched = psutil.Process(process.pid)
        await http.post("/v1/media", content=PNG, headers={"Content-Type": "image/png"})
        before = watched.memory_info().rss
        response = await http.post("/v1/media", content=chunks(), headers={"Content-Type": "application/x-large"})
        assert response.status_code == 200, response.text
        media_id = response.json()["media"][0]["id"]
        received = 0
        async with http.stream("GET", f"/v1/media/{media_id}") as found:
            async for chunk in found.aiter_bytes(MIB):
                received += len(chunk)
        assert received == size
        assert watched.memory_info().rss - before < 20 * MIB
