"""Wrong words on the command line result in one clear line, and spoil no file."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from aiohttp import web

from cli.traffic import runs
from cli.traffic.target import LoginRefused, TrafficTarget
from tests import migrated
from tests.cli.support import run

DEFECT = "shows where"  # part of the line about a defect in Tidings


async def test_a_second_recording_leaves_the_file_of_the_first_unchanged(tmp_path: Path) -> None:
    socket, file, stop = tmp_path / "tap.sock", tmp_path / "shapes.jsonl", asyncio.Event()
    file.write_text('{"at":0.0,"call":"messages","size":2}\n')
    async with runs.listening(socket, lambda copied: None):
        with pytest.raises(FileExistsError):
            await runs.record(socket, file, seconds=1.0, limit=1, stop=stop)
    assert len(list(runs.read(file))) == 1


@pytest.mark.parametrize(("file", "socket"), [("none/f", "s"), ("f", "none/s")])
def test_a_recording_into_a_missing_directory_is_refused_in_one_line(tmp_path: Path, file: str, socket: str) -> None:
    done = run("traffic", "record", str(tmp_path / file), "--socket", str(tmp_path / socket), "--seconds", "0.1")
    assert (done.returncode, DEFECT in done.stderr) == (1, False), done.stderr


async def test_a_login_that_a_proxy_answers_with_html_is_reported() -> None:
    async def login(request: web.Request) -> web.Response:
        return web.Response(status=502, text="<html>Bad Gateway</html>", content_type="text/html")

    app = web.Application()
    app.router.add_post("/v1/users/login", login)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        with pytest.raises(LoginRefused, match="502"):
            async with TrafficTarget(f"http://127.0.0.1:{runner.addresses[0][1]}", "admin", "right", in_flight=1):
                pass
    finally:
        await runner.cleanup()


def test_a_number_with_the_pages_is_refused() -> None:
    done = run("handset", "+15550100001", "--web")
    assert (done.returncode, "not both" in done.stderr, DEFECT in done.stderr) == (1, True, False), done.stderr


def test_top_names_an_invalid_address() -> None:
    done = run("top", "--once", "--interval", "0.1", "--webapp", "http://[::1")
    assert DEFECT not in done.stderr, done.stderr


@pytest.mark.parametrize(
    "words",
    [
        # The id of a status without its last character.
        ("queue", "callbacks", "--event", "evt_" + "a" * 31),
        ("callbacks", "replay", "evt_" + "a" * 31),
        ("queue", "purge", "--since", "999999d", "--yes"),
    ],
)
async def test_an_event_or_time_out_of_range_is_not_reported_as_a_defect(
    tmp_path: Path, words: tuple[str, ...]
) -> None:
    await migrated.create_sqlite(tmp_path / "business.db", "business")
    done = await asyncio.to_thread(run, *words, TIDINGS_DATA_DIR=str(tmp_path), TIDINGS_BUSINESS_NUMBER="15559990000")
    assert DEFECT not in done.stderr, done.stderr


@pytest.mark.parametrize("wrong", [("--limit", "0"), ("--limit", "-1"), ("--seconds", "-1"), ("--seconds", "nan")])
def test_a_recording_of_nothing_is_refused(tmp_path: Path, wrong: tuple[str, str]) -> None:
    words = ("traffic", "record", str(tmp_path / "f"), "--socket", str(tmp_path / "s"), "--seconds", "0.1", *wrong)
    done = run(*words)
    assert (done.returncode, wrong[0] in done.stderr) == (1, True), done.stdout


@pytest.mark.parametrize("url", ["127.0.0.1:9090", "nowhere", "ftp://127.0.0.1"])
def test_a_target_that_is_no_url_is_refused_with_an_example(tmp_path: Path, url: str) -> None:
    (tmp_path / "f").write_text("")
    done = run("traffic", "replay", str(tmp_path / "f"), "--to", url)
    assert (done.returncode, f"--to '{url}' is not a URL like http://" in done.stderr) == (1, True), done.stderr
