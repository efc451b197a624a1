"""Copies of requests for a listener on this machine, which no request ever waits for."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest
from starlette.types import Message, Receive, Scope, Send

import webapp.http.tap
from cli.traffic import runs
from tidings.wire import tap
from tidings.wire.tap import CopiedRequest
from webapp.http.tap import DROPPED, MAX_BUFFERED, Tap

TIMEOUT = 30.0


async def application(scope: Scope, receive: Receive, send: Send) -> None:
    """Respond with the request's body."""
    body, more = b"", True
    while more:
        message: Message = await receive()
        body += message["body"]
        more = message.get("more_body", False)
    await send({"type": "http.response.start", "status": 201, "headers": []})
    await send({"type": "http.response.body", "body": body})


@contextlib.asynccontextmanager
async def tapping(path: Path) -> AsyncIterator[tuple[Tap, httpx.AsyncClient]]:
    served, stop = Tap(path), asyncio.Event()
    running = asyncio.create_task(served.run(stop))
    transport = httpx.ASGITransport(app=served.layer(application))
    async with httpx.AsyncClient(transport=transport, base_url="http://webapp") as client:
        yield served, client
    stop.set()
    await running


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("webapp.http.tap.INTERVAL", 0.01)


async def test_a_listener_gets_posted_requests_with_their_status(tmp_path: Path) -> None:
    copies: asyncio.Queue[CopiedRequest] = asyncio.Queue()
    path = tmp_path / "tap"
    async with tapping(path) as (_, client), runs.listening(path, copies.put_nowait):
        async with asyncio.timeout(TIMEOUT):
            while copies.empty():
                response = await client.post("/v1/messages", content=b'{"to":"1"}')
                await asyncio.sleep(0)
            copied = await copies.get()
            assert response.content == b'{"to":"1"}'
            assert (copied.path, copied.status, copied.size, copied.body) == ("/v1/messages", 201, 10, b'{"to":"1"}')
            await client.post("/v1/users/login", content=b"a secret")
            long = bytes(tap.MAX_BODY + 1)
            assert (await client.post("/v1/messages", content=long)).content == long
            while (copied := await copies.get()).size == 10:
                pass
            assert (copied.path, copied.size, copied.body) == ("/v1/messages", len(long), b"")


async def test_requests_are_served_without_a_listener_and_after_its_disconnect(tmp_path: Path) -> None:
    path = tmp_path / "tap"
    async with tapping(path) as (_, client):
        assert (await client.post("/v1/messages", content=b"1")).status_code == 201
        copies: asyncio.Queue[CopiedRequest] = asyncio.Queue()
        async with runs.listening(path, copies.put_nowait), asyncio.timeout(TIMEOUT):
            while copies.empty():
                assert (await client.post("/v1/messages", content=b"2")).status_code == 201
                await asyncio.sleep(0)
        assert (await client.post("/v1/messages", content=b"3")).status_code == 201


async def test_a_listener_that_does_not_read_loses_copies_and_delays_no_request(tmp_path: Path) -> None:
    path = tmp_path / "tap"
    arrived: asyncio.Queue[asyncio.Transport] = asyncio.Queue()

    class Deaf(asyncio.Protocol):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            transport.pause_reading()  # type: ignore[attr-defined]
            arrived.put_nowait(transport)  # type: ignore[arg-type]

    server = await asyncio.get_running_loop().create_unix_server(Deaf, str(path))
    async with tapping(path) as (_, client), asyncio.timeout(TIMEOUT):
        deaf, before = await arrived.get(), DROPPED._value.get()
        body = bytes(tap.MAX_BODY)
        # Enough to fill every buffer of the system and of the process for the listener.
        for _ in range(4 * MAX_BUFFERED // len(body) + 20):
            assert (await client.post("/v1/messages", content=body)).status_code == 201
        assert DROPPED._value.get() > before
        deaf.abort()
    server.close()


async def test_a_listener_of_another_user_gets_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    requested, copies, path = asyncio.Event(), asyncio.Queue[CopiedRequest](), tmp_path / "tap"
    own = webapp.http.tap._user_of

    def user_of(connected: socket.socket) -> int:
        assert own(connected) == os.geteuid()
        requested.set()
        return 12345

    monkeypatch.setattr("webapp.http.tap._user_of", user_of)
    with caplog.at_level("WARNING", logger="webapp.http.tap"):
        async with tapping(path) as (served, client), runs.listening(path, copies.put_nowait):
            for _ in range(2):
                requested.clear()
                async with asyncio.timeout(TIMEOUT):
                    await requested.wait()
            assert (await client.post("/v1/messages", content=b"1")).status_code == 201
            assert served._transport is None
    assert copies.empty()
    assert [record.getMessage() for record in caplog.records] == ["tap.refused"]
