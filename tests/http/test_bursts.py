"""Many connections at once from one address: those of an address that has logged in wait, and none is reset."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import ssl
from collections import Counter
from pathlib import Path

import pytest

from tests.authority import Authority
from tests.coreapp.signals import soon
from tests.http.support import Server, answer, connected, serve
from tests.manual_clock import ManualClock
from tidings.http.listener_settings import UnauthenticatedSettings
from tidings.http.refusal_log import RefusalLog

KNOWN = b"GET / HTTP/1.1\r\nHost: x\r\nAuthorization: known\r\n\r\n"
LINE = "http.connections_refused"


async def log_in(server: Server, **options: object) -> None:
    async with connected(server, **options) as (reader, writer):
        writer.write(KNOWN)
        assert (await answer(reader))[0] == 200


async def burst(server: Server, count: int, request: bytes, **options: object) -> Counter[str]:
    """Open `count` connections at once, and count the outcomes: the status, or the name of the error."""

    async def one() -> str:
        try:
            reader, writer = await asyncio.open_connection("127.0.0.1", server.port, **options)  # type: ignore[arg-type]
        except OSError as error:
            return type(error).__name__
        try:
            writer.write(request)
            status, _ = await answer(reader)
            return str(status)
        except (OSError, asyncio.IncompleteReadError) as error:
            return type(error).__name__
        finally:
            writer.transport.abort()

    async with asyncio.timeout(60):
        return Counter(await asyncio.gather(*(one() for _ in range(count))))


@pytest.mark.parametrize("count", [400, 1000])
async def test_a_burst_of_1000_connections_from_a_known_address_is_served_in_full(count: int) -> None:
    async with serve(limits=UnauthenticatedSettings()) as server:
        await log_in(server)
        assert await burst(server, count, KNOWN) == {"200": count}


async def test_a_burst_of_tls_connections_from_a_known_address_is_served_in_full(tmp_path: Path) -> None:
    authority = Authority()
    context = authority.server_context(tmp_path, "localhost")
    options = {"ssl": ssl.create_default_context(cadata=authority.pem.decode()), "server_hostname": "localhost"}
    async with serve(limits=UnauthenticatedSettings(), tls=context) as server:
        await log_in(server, **options)
        assert await burst(server, 300, KNOWN, **options) == {"200": 300}


async def test_known_connections_beyond_the_waiting_limit_get_503_with_retry_after() -> None:
    limits = UnauthenticatedSettings(rate=0.0, rate_each=0.0, connections=2, waiting_known=3)
    async with serve(limits=limits, clock=ManualClock()) as server, contextlib.AsyncExitStack() as stack:
        await log_in(server)
        # Connections with a slot, and connections that wait for one.
        held = [await stack.enter_async_context(connected(server)) for _ in range(5)]
        await soon(lambda: len(server.limiter) == 2)
        for _ in range(20):
            reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
            writer.write(KNOWN)
            head = await reader.readuntil(b"\r\n\r\n")
            assert head.startswith(b"HTTP/1.1 503 ")
            assert b"retry-after: 1\r\n" in head.lower()
            assert b"connection: close\r\n" in head.lower()
            assert await reader.read()
            writer.close()
        for _, writer in held[:2]:
            writer.transport.abort()
        held[2][1].write(KNOWN)
        assert (await answer(held[2][0]))[0] == 200


async def test_an_unknown_address_has_100_connections_served_and_256_waiting() -> None:
    held = []
    async with serve(limits=UnauthenticatedSettings(), clock=ManualClock()) as server:
        for _ in range(100 + 256 + 10):
            connection = socket.socket()
            connection.setblocking(False)
            held.append(connection)
            with contextlib.suppress(ConnectionResetError):
                await asyncio.get_running_loop().sock_connect(connection, ("127.0.0.1", server.port))
        await soon(lambda: len(server.limiter) == 100)

        def is_reset(connection: socket.socket) -> bool:
            try:
                return not connection.recv(1)
            except BlockingIOError:
                return False
            except OSError:
                return True

        reset = sum(map(is_reset, held))
        for connection in held:
            connection.close()
    assert reset == 10


async def test_refused_connections_are_logged_once_per_address(caplog: pytest.LogCaptureFixture) -> None:
    limits = UnauthenticatedSettings(rate=0.0, rate_each=0.0, connections_each=1, waiting_each=1)
    with caplog.at_level(logging.WARNING):
        async with serve(limits=limits, clock=ManualClock()) as server, connected(server), connected(server):
            await soon(lambda: len(server.limiter) == 1)
            assert set(await burst(server, 30, KNOWN)) <= {"ConnectionResetError", "IncompleteReadError"}
    lines = [record for record in caplog.records if record.message == LINE]
    assert [(line.__dict__["peer"], line.__dict__["refused"]) for line in lines] == [("127.0.0.1", 1)]


def test_the_log_line_after_a_minute_counts_the_refused_connections(caplog: pytest.LogCaptureFixture) -> None:
    clock = ManualClock()
    log = RefusalLog(clock)
    with caplog.at_level(logging.WARNING):
        for seconds in (0, 10, 49.9, 0.2, 30):
            clock.advance(seconds)
            log.refused("192.0.2.1", "no slot is free")
    assert [record.__dict__["refused"] for record in caplog.records] == [1, 3]


def test_a_flood_from_many_addresses_logs_at_most_100_lines_per_minute(caplog: pytest.LogCaptureFixture) -> None:
    clock = ManualClock()
    log = RefusalLog(clock)
    with caplog.at_level(logging.WARNING):
        for number in range(20_000):
            log.refused(f"2001:db8::{number:x}", "no slot is free")
        assert len(caplog.records) == 100
        clock.advance(60)
        log.refused("192.0.2.1", "no slot is free")
    assert len(caplog.records) == 101
    assert len(log) <= 10_000
