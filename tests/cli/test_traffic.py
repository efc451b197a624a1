"""`tidings traffic`: shapes without contents or numbers, their replay, and a share of live requests."""

from __future__ import annotations

import argparse
import asyncio
import base64
import contextlib
import json
import socket
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from aiohttp import web

from cli import guard
from cli.commands import traffic
from cli.traffic import runs, shapes, target
from cli.traffic.runs import Recorder, Tee
from cli.traffic.shapes import NumberRange, RecipientIndexes, Shape
from cli.traffic.target import LoginRefused, TrafficTarget
from harness import polling
from tidings.wire import tap
from tidings.wire.tap import CopiedRequest

NUMBERS = NumberRange(15550110000, 100)
SECRET, NUMBER, OTHER = "the words of a person", "4917612345678", "4917612345679"


def copied(body: dict[str, Any] | bytes, *, path: str = "/v1/messages", at: float = 1000.0) -> CopiedRequest:
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    return CopiedRequest(at, path, 201, 0.012, len(data), data)


def text(to: str = NUMBER, words: str = SECRET) -> dict[str, Any]:
    return {"to": to, "type": "text", "text": {"body": words}}


class Installation:
    """Another installation, which records the requests that it gets."""

    def __init__(self) -> None:
        self.requests: list[tuple[str, Any]] = []
        self.times: list[float] = []
        self.hold = asyncio.Event()  # responses wait for it
        self.hold.set()
        self.url = ""

    async def login(self, request: web.Request) -> web.Response:
        if request.headers["Authorization"] != f"Basic {base64.b64encode(b'admin:right').decode()}":
            return web.json_response({"errors": []}, status=401)
        return web.json_response({"users": [{"token": "a token"}]})

    async def greet(self, request: web.Request) -> web.Response:
        return web.json_response({})

    async def take(self, request: web.Request) -> web.Response:
        assert request.headers["Authorization"] == "Bearer a token"
        self.requests.append((request.path, await request.json()))
        self.times.append(asyncio.get_running_loop().time())
        await self.hold.wait()
        return web.json_response({}, status=201)


@pytest.fixture
async def installation() -> AsyncIterator[Installation]:
    served = Installation()
    app = web.Application()
    app.router.add_post("/v1/users/login", served.login)
    app.router.add_post("/other/v1/users/login", served.greet)
    app.router.add_post("/v1/messages", served.take)
    app.router.add_post("/v1/contacts", served.take)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    served.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    yield served
    served.hold.set()
    await runner.cleanup()


def test_a_recording_has_times_sizes_and_types_but_no_contents_or_numbers(tmp_path: Path) -> None:
    path = tmp_path / "recorded"
    with path.open("w") as file:
        recorder = Recorder(file, limit=5)
        recorder.take(copied(text()))
        recorder.take(copied(text(OTHER), at=1000.5))
        recorder.take(copied({"contacts": [NUMBER, OTHER]}, path="/v1/contacts", at=1001.0))
        recorder.take(copied({**text(), "type": f"{SECRET} {NUMBER}"}, at=1002.0))
        recorder.take(copied(b"[" * 100_000, at=1003.0))
        recorder.take(copied(text(), at=1004.0))
    written = path.read_text()
    assert not any(word in written for word in (SECRET, NUMBER, OTHER, NUMBER[:8]))
    first, second, check, strange, malformed = runs.read(path)
    size = len(json.dumps(text()))
    assert first == Shape(0.0, "messages", size, "text", len(SECRET), 1, status=201, took=12.0)
    assert (second.at, second.to) == (0.5, 2)
    assert (check.call, check.many, check.at) == ("contacts", 2, 1.0)
    assert (strange.type, strange.to) == ("unknown", 1)
    assert (malformed.size, malformed.to) == (100_000, 0)
    assert recorder.full.is_set()


def test_the_digest_of_a_number_differs_between_recordings() -> None:
    one, other = RecipientIndexes(), RecipientIndexes()
    assert one.index(NUMBER) == other.index(NUMBER) == 1
    assert one._known.keys().isdisjoint(other._known)


def test_synthetic_requests_have_the_recorded_size() -> None:
    path, body = shapes.request_of(Shape(0.0, "messages", 300, "text", 212, 7), NUMBERS)
    assert (path, body["to"], len(body["text"]["body"])) == ("/v1/messages", "15550110007", 212)
    for type_, size in (("image", 9000), ("template", 500)):
        _, body = shapes.request_of(Shape(0.0, "messages", size, type_), NUMBERS)
        assert len(body["text"]["body"]) == min(size, shapes.MAX_TEXT)
    path, body = shapes.request_of(Shape(0.0, "contacts", 90, many=3), NUMBERS)
    assert (path, body["contacts"]) == ("/v1/contacts", ["+15550110000", "+15550110001", "+15550110002"])


async def test_a_replay_keeps_the_recorded_intervals_divided_by_its_speed(installation: Installation) -> None:
    recorded = [Shape(at, "messages", 100, "text", 50, index) for index, at in enumerate((0.0, 1.0, 3.0))]
    async with TrafficTarget(installation.url, "admin", "right", in_flight=10) as target:
        await runs.replay(recorded, target, NUMBERS, speed=10, stop=asyncio.Event())
    assert target.stats.statuses == {"201": 3}
    first, second, third = installation.times
    # Never before its time.
    assert second - first > 0.05
    assert third - second > 0.1
    assert [body["to"] for _, body in installation.requests] == ["15550110000", "15550110001", "15550110002"]


async def test_a_replay_that_is_behind_its_times_stops_when_asked_to(installation: Installation) -> None:
    installation.hold.clear()
    stop, shape = asyncio.Event(), Shape(0.0, "messages", 100, "text", 50, 0)
    async with TrafficTarget(installation.url, "admin", "right", in_flight=3) as target:
        asyncio.get_running_loop().call_soon(stop.set)
        await runs.replay([shape] * 10_000, target, NUMBERS, speed=1, stop=stop)
        installation.hold.set()
    assert target.stats.sent + target.stats.dropped < 10


async def test_requests_the_target_is_too_slow_for_are_dropped_and_counted(installation: Installation) -> None:
    installation.hold.clear()
    async with TrafficTarget(installation.url, "admin", "right", in_flight=3) as target:
        for _ in range(10):
            target.send("/v1/messages", text())
        installation.hold.set()
    assert (target.stats.sent, target.stats.dropped, target.stats.statuses) == (3, 7, Counter({"201": 3}))


async def test_a_wrong_password_is_reported_before_any_request(installation: Installation) -> None:
    with pytest.raises(LoginRefused, match="TIDINGS_TRAFFIC_PASSWORD the password of admin"):
        async with TrafficTarget(installation.url, "admin", "wrong", in_flight=3):
            pass


@pytest.mark.parametrize("path", ["/v1", "/other"])
async def test_a_wrong_address_is_not_reported_as_a_wrong_password(installation: Installation, path: str) -> None:
    with pytest.raises(LoginRefused, match="--to the base URL") as raised:
        async with TrafficTarget(installation.url + path, "admin", "right", in_flight=3):
            pass
    assert "PASSWORD" not in str(raised.value)


@pytest.mark.parametrize("with_contents", [False, True])
async def test_a_tee_copies_whole_conversations_and_replaces_their_numbers(
    installation: Installation, *, with_contents: bool
) -> None:
    async with TrafficTarget(installation.url, "admin", "right", in_flight=1000) as target:
        tee = Tee(target, 0.5, NUMBERS, with_contents=with_contents)
        for _ in range(3):
            for index in range(100):
                tee.take(copied(text(f"{49176000000 + index}")))
    counts = Counter(body["to"] for _, body in installation.requests)
    assert set(counts.values()) == {3}
    assert 20 < len(counts) < 80
    assert all(number.startswith("1555011") for number in counts)
    assert {body["text"]["body"] == SECRET for _, body in installation.requests} == {with_contents}


def test_an_invalid_recording_raises_decodeerror(tmp_path: Path) -> None:
    path = tmp_path / "recorded"
    path.write_text('{"at": "soon"}\n')
    with pytest.raises(msgspec.DecodeError):
        list(runs.read(path))


async def test_a_recording_ends_with_an_error_when_the_disk_is_full(tmp_path: Path) -> None:
    path, stop = tmp_path / "tap", asyncio.Event()
    recording = asyncio.create_task(runs.record(path, Path("/dev/full"), seconds=3600, limit=10_000, stop=stop))
    await polling.until(path.exists)
    with contextlib.suppress(ConnectionError, FileNotFoundError):
        for _ in range(300):
            _, writer = await asyncio.open_unix_connection(str(path))
            writer.write(tap.framed(copied(text())))
            writer.close()
            await writer.wait_closed()
    await asyncio.wait([recording], timeout=5)
    was_over = recording.done()
    stop.set()
    with pytest.raises(OSError, match="No space left"):
        await recording
    assert was_over


def test_a_hung_target_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(target, "TIMEOUT", 0.2)
    parser = argparse.ArgumentParser()
    traffic.add_arguments(parser)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        with pytest.raises(guard.CommandFailure, match=url):
            traffic.run(parser.parse_args(["replay", "unused", "--to", url]))
