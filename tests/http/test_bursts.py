"""Many connections at once from one address: those of an address that has logged in wait, and none is reset.

`tests/system/test_tls_bursts.py` has 1,000 connections over TLS to a Webapp.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import logging
import resource
import socket
import ssl
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.authority import Authority
from tests.coreapp.signals import soon
from tests.http.support import Server, connected, read_response, serve
from tests.manual_clock import ManualClock
from tidings.http import acceptor, refused_connections
from tidings.http.listener_settings import UnauthenticatedSettings
from tidings.http.refusal_log import RefusalLog
from tidings.http.refused_connections import RefusedConnections
from tidings.net import tls_server
from tidings.net.tls_server import Handshakes

KNOWN = b"GET / HTTP/1.1\r\nHost: x\r\nAuthorization: known\r\n\r\n"
LINE = "http.connections_refused"


@pytest.fixture(autouse=True)
def _descriptors() -> None:
    """Both ends of up to 2,100 connections are in this process."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


async def log_in(server: Server, **options: object) -> None:
    async with connected(server, **options) as (reader, writer):
        writer.write(KNOWN)
        assert (await read_response(reader))[0] == 200


async def burst(server: Server, count: int, request: bytes, **options: object) -> Counter[str]:
    """Open `count` connections at once, and count the outcomes: the status, or the name of the error."""

    async def one() -> str:
        try:
            reader, writer = await asyncio.open_connection("127.0.0.1", server.port, **options)  # type: ignore[arg-type]
        except OSError as error:
            return type(error).__name__
        try:
            writer.write(request)
            status, _ = await read_response(reader)
            return str(status)
        except (OSError, asyncio.IncompleteReadError) as error:
            return type(error).__name__
        finally:
            writer.transport.abort()

    async with asyncio.timeout(120):
        return Counter(await asyncio.gather(*(one() for _ in range(count))))


@pytest.mark.parametrize("count", [400, 1000])
async def test_a_burst_of_1000_connections_from_a_known_address_is_served_in_full(count: int) -> None:
    async with serve(limits=UnauthenticatedSettings()) as server:
        await log_in(server)
        assert await burst(server, count, KNOWN) == {"200": count}


@dataclasses.dataclass(frozen=True, slots=True)
class Tls:
    """Contexts of a server with TLS, and of its clients."""

    server: ssl.SSLContext
    # Arguments of `asyncio.open_connection`.
    options: dict[str, object]


@pytest.fixture
def tls(tmp_path: Path) -> Tls:
    authority = Authority()
    context = ssl.create_default_context(cadata=authority.pem.decode())
    return Tls(authority.server_context(tmp_path, "localhost"), {"ssl": context, "server_hostname": "localhost"})


def handshakes() -> float:
    """Return the number of handshakes that were performed, successful or not."""
    results = ("done", "failed", "late")
    return sum(tls_server.HANDSHAKES.labels("http", result)._value.get() for result in results)


async def test_a_burst_of_tls_connections_from_a_known_address_is_served_in_full(tls: Tls) -> None:
    async with serve(limits=UnauthenticatedSettings(), tls=tls.server) as server:
        await log_in(server, **tls.options)
        assert await burst(server, 300, KNOWN, **tls.options) == {"200": 300}


@contextlib.asynccontextmanager
async def full(context: Tls | None = None) -> AsyncIterator[Server]:
    """Serve an address that has logged in and whose connections have all slots for connections and for waiting."""
    limits = UnauthenticatedSettings(rate=0.0, rate_each=0.0, connections=2, waiting_known=3)
    secured = context.options if context else {}
    tls = context.server if context else None
    async with serve(limits=limits, clock=ManualClock(), tls=tls) as server, contextlib.AsyncExitStack() as held:
        await log_in(server, **secured)
        for _ in range(2):
            await held.enter_async_context(connected(server, **secured))
        for _ in range(3):
            held.callback((await silent(server)).close)
        await soon(lambda: len(server.limiter) == 2)
        yield server


async def silent(server: Server) -> socket.socket:
    """Return a connection on which nothing was sent, no TLS handshake either."""
    connection = socket.socket()
    connection.setblocking(False)
    # A connection may be reset at once.
    with contextlib.suppress(ConnectionResetError):
        await asyncio.get_running_loop().sock_connect(connection, ("127.0.0.1", server.port))
    return connection


def is_reset(connection: socket.socket) -> bool:
    try:
        return not connection.recv(1)
    except BlockingIOError:
        return False
    except OSError:
        return True


@pytest.mark.parametrize("secured", [False, True], ids=["plaintext", "tls"])
async def test_1000_connections_beyond_the_waiting_limit_get_503(tls: Tls, secured: bool) -> None:
    async with full(context=tls if secured else None) as server:
        options = tls.options if secured else {}
        assert await burst(server, 1000, KNOWN, **options) == {"503": 1000}


async def test_over_tls_a_connection_that_has_waited_for_10_seconds_gets_503_with_retry_after(
    tls: Tls, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(acceptor, "MAX_WAIT", 0.3)
    limits = UnauthenticatedSettings(rate=0.0, rate_each=0.0, connections=2)
    async with serve(limits=limits, clock=ManualClock(), tls=tls.server) as server, contextlib.AsyncExitStack() as held:
        await log_in(server, **tls.options)
        for _ in range(2):
            await held.enter_async_context(connected(server, **tls.options))
        async with connected(server, **tls.options) as (reader, writer):
            writer.write(KNOWN)
            head = (await reader.readuntil(b"\r\n\r\n")).lower()
            assert head.startswith(b"http/1.1 503 ")
            assert b"retry-after: 1\r\n" in head
            assert b"connection: close\r\n" in head
            assert b"too many connections" in await reader.read()


async def test_a_503_follows_the_start_of_the_request() -> None:
    # Go's client reports a response before its request as an error.
    async with full() as server, connected(server) as (reader, writer):
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(reader.read(1), 0.3)
        writer.write(KNOWN)
        assert (await read_response(reader))[0] == 503


@pytest.mark.parametrize("secured", [False, True], ids=["plaintext", "tls"])
async def test_beyond_2048_connections_to_be_refused_a_known_address_is_reset(
    tls: Tls, secured: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    # No response starts while the test counts.
    monkeypatch.setattr(refused_connections, "_PAUSE", 60.0)
    async with full(context=tls if secured else None) as server, contextlib.AsyncExitStack() as stack:
        held = []
        for _ in range(2048 + 40):
            held.append(await silent(server))
            stack.callback(held[-1].close)
        await soon(lambda: sum(map(is_reset, held)) == 40)


async def test_clients_that_send_nothing_hold_at_most_16_handshakes(tls: Tls) -> None:
    under_way = tls_server.UNDER_WAY.labels("http")._value
    async with full(context=tls) as server, contextlib.AsyncExitStack() as stack:
        for _ in range(100):
            stack.callback((await silent(server)).close)
        await soon(lambda: under_way.get() == 16)
        with pytest.raises(TimeoutError):
            await soon(lambda: under_way.get() > 16, timeout=0.3)


async def test_an_address_gets_2048_handshakes_for_refusals_and_then_32_per_second(tls: Tls) -> None:
    clock = ManualClock()
    made = RefusedConnections(
        clock, lambda work: work.close(), lambda: b"", context=tls.server, handshakes=Handshakes("bursts")
    )
    with socket.socket() as connection:

        def added(address: str) -> int:
            return sum(made.add(connection, address) for _ in range(2100))

        assert added("192.0.2.1") == 2048
        made.close()
        assert added("192.0.2.1") == 0
        assert added("192.0.2.2") == 2048
        made.close()
        clock.advance(1)
        assert added("192.0.2.1") == 32
        made.close()


async def test_an_unknown_address_is_refused_over_tls_without_a_handshake(tls: Tls) -> None:
    limits = UnauthenticatedSettings(rate=0.0, rate_each=0.0, connections_each=1, waiting_each=1)
    serving = serve(limits=limits, clock=ManualClock(), tls=tls.server)
    async with serving as server, connected(server, **tls.options):
        waiting = await silent(server)
        before = handshakes()
        outcomes = await burst(server, 50, KNOWN, **tls.options)
        waiting.close()
    assert not any(outcome.isdigit() for outcome in outcomes)
    assert handshakes() == before


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
        assert (await read_response(held[2][0]))[0] == 200


async def test_an_unknown_address_has_100_connections_served_and_256_waiting() -> None:
    limits = UnauthenticatedSettings()
    async with serve(limits=limits, clock=ManualClock()) as server, contextlib.AsyncExitStack() as stack:
        held = [await silent(server) for _ in range(100 + 256 + 10)]
        for connection in held:
            stack.callback(connection.close)
        await soon(lambda: len(server.limiter) == 100)
        assert sum(map(is_reset, held)) == 10


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
