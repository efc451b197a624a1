"""Webapps on several hosts: a directory of files that is not the shared one is refused, or counts as an outage."""

from __future__ import annotations

import asyncio
import os
import shutil
import sys
from pathlib import Path

import httpx

from harness import polling
from tests.media_samples import PNG
from tests.webapp.test_media_crash import TIMEOUT, logged_in, webapp

TYPE = {"Content-Type": "image/png"}


async def refused(directory: Path, **variables: str) -> str:
    """Return the error output of a Webapp that does not start."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *("-m", "cli.main", "webapp"),
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
        env={**os.environ, "TIDINGS_DATA_DIR": str(directory), "TIDINGS_API_ADDRESS": "127.0.0.1:0", **variables},
    )
    try:
        async with asyncio.timeout(TIMEOUT):
            _, said = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
    assert process.returncode == 2
    return said.decode()


async def ready(http: httpx.AsyncClient) -> dict[str, str]:
    response = await http.get("/health/ready")
    found: dict[str, str] = response.json()["health"]
    assert response.status_code == (200 if found["status"] == "ready" else 503)
    return found


async def test_a_second_webapp_with_a_separate_media_directory_does_not_start(tmp_path: Path) -> None:
    async with webapp(tmp_path) as (_, url), logged_in(url) as http:
        assert (await http.post("/v1/media", content=PNG, headers=TYPE)).status_code == 200
        said = await refused(tmp_path, TIDINGS_MEDIA_DIR=str(tmp_path / "not-shared"))
    assert f"TIDINGS_MEDIA_DIR {tmp_path}/not-shared has no marker file" in said
    assert "tidings files adopt media" in said


async def test_without_its_media_directory_a_webapp_is_not_ready_and_returns_503(tmp_path: Path) -> None:
    media, away = tmp_path / "media", tmp_path / "away"
    async with webapp(tmp_path) as (_, url), logged_in(url) as http:
        media_id = (await http.post("/v1/media", content=PNG, headers=TYPE)).json()["media"][0]["id"]
        media.rename(away)
        media.mkdir()
        for response in (
            await http.get(f"/v1/media/{media_id}"),
            await http.post("/v1/media", content=PNG, headers=TYPE),
        ):
            assert response.status_code == 503, response.text
            assert "Retry-After" in response.headers
        assert os.listdir(media) == []

        async def is_away() -> bool:
            return (await ready(http))["media"] == "away"

        async def is_back() -> bool:
            return (await ready(http))["media"] == "ok"

        await polling.until(is_away, seconds=TIMEOUT)
        shutil.rmtree(media)
        away.rename(media)
        await polling.until(is_back, seconds=TIMEOUT)
        assert (await http.get(f"/v1/media/{media_id}")).content == PNG
