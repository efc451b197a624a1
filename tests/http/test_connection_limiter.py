"""Order of service when many connect at once: unauthenticated clients, known clients, proxies, and urgent
requests."""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import itertools
import math
from pathlib import Path

import pytest

from tests.authority import Authority
from tests.coreapp.signals import soon
from tests.http.support import Server, connected, read_response, serve, write_on
from tests.manual_clock import ManualClock
from tidings.aio import dispatch_limit
from tidings.aio.clock import SystemClock
from tidings.http import connection_limiter
from tidings.http.connection_limiter import AdmittedConnection, ConnectionLimiter
from tidings.http.listener_settings import UnauthenticatedSettings


async def test_unauthenticated_requests_are_delayed_and_authenticated_ones_are_not() -> None:
    limits = UnauthenticatedSettings(rate=0.0, rate_each=10.0)
    request = b"GET / HTTP/1.1\r\n\r\n"
    async with serve(limits=limits) as server, connected(server) as unknown, connected(server) as other:
        # More than the burst of a full token bucket, after which the unauthenticated requests are delayed.
        unknown[1].write(request * 400)
        while server.served < 150:
            assert (await read_response(unknown[0]))[0] == 200
        before = server.served
        for authorization in (b"known", b"none", b"none"):
            other[1].write(b"GET / HTTP/1.1\r\nAuthorization: %b\r\n\r\n" % authorization)
            assert (await read_response(other[0]))[0] == 200
        assert server.served - before < 100


def test_requests_through_a_proxy_to_a_path_with_a_known_secret_are_not_delayed() -> None:
    limits = UnauthenticatedSettings(rate=0.0, rate_each=10.0)
    limiter = ConnectionLimiter(
        limits, ManualClock(), connections=100, trusted=PROXY, recognise_path=lambda path: path == "/callbacks/secret"
    )
    admitted = limiter.admit("127.0.0.1", lambda: None)
    assert isinstance(admitted, AdmittedConnection)

    def admit(address: bytes, path: str) -> float:
        return limiter.admit_request(admitted, [(b"x-forwarded-for", address)], path)

    # As many as arrive while the event loop stands still.
    assert {admit(b"192.0.2.1", "/callbacks/secret") for _ in range(1000)} == {0.0}
    assert admit(b"192.0.2.2", "/callbacks/guess") == 0.0
    assert max(admit(b"192.0.2.2", "/callbacks/guess") for _ in range(1000)) > 1.0


def test_costly_requests_of_others_refuse_a_client_for_at_most_five_seconds() -> None:
    clock = ManualClock()
    limiter = ConnectionLimiter(UnauthenticatedSettings(rate=16.0, rate_each=0.0), clock, connections=100)
    admitted = [limiter.admit(f"192.0.2.{n}", lambda: None) for n in range(20)]
    others = [one for one in admitted if isinstance(one, AdmittedConnection)]
    assert len(others) == 20
    dispatched = [other for other in others * 20 if limiter.admit_request(other, []) < math.inf]
    for other in dispatched:
        limiter.consume(other, 3.0)
    client = limiter.admit("192.0.2.100", lambda: None)
    assert isinstance(client, AdmittedConnection)
    assert limiter.admit_request(client, []) == math.inf
    clock.advance(5.1)
    assert limiter.admit_request(client, []) <= 5.0


async def test_a_request_whose_delay_would_be_too_long_is_refused() -> None:
    limits = UnauthenticatedSettings(rate=0.0, rate_each=0.01)
    async with serve(limits=limits) as server, connected(server) as (reader, writer):
        writer.write(b"GET / HTTP/1.1\r\n\r\n" * 2)
        assert [(await read_response(reader))[0] for _ in range(2)] == [200, 429]
        assert await reader.read() == b""
        assert server.served == 1


def test_a_flood_of_bodies_delays_later_requests_of_its_address_by_5_seconds_at_most() -> None:
    clock = ManualClock()
    limiter = ConnectionLimiter(UnauthenticatedSettings(), clock, connections=100)
    sender, other = (limiter.admit("203.0.113.7", lambda: None) for _ in range(2))
    assert isinstance(sender, AdmittedConnection)
    assert isinstance(other, AdmittedConnection)
    for _ in range(600):
        # One megabyte; the wait is not kept.
        limiter.received(sender, 1_000_000, is_held=False)
    clock.advance(0.5)
    assert 0.0 < limiter.admit_request(other, []) <= 5.0


async def test_connections_beyond_the_limit_of_an_address_wait_until_one_logs_in() -> None:
    limits = UnauthenticatedSettings(rate=0.0, rate_each=0.0, connections_each=2)
    async with serve(limits=limits) as server, contextlib.AsyncExitStack() as stack:
        clients = [await stack.enter_async_context(connected(server)) for _ in range(20)]
        for _, writer in clients:
            writer.write(b"GET / HTTP/1.1\r\nAuthorization: good\r\n\r\n")
        for reader, _ in clients:
            assert (await read_response(reader))[0] == 200


async def test_the_oldest_unauthenticated_connection_is_closed_at_the_limit() -> None:
    async with serve(connections=2) as server, connected(server) as good, connected(server) as idle:
        good[1].write(b"GET / HTTP/1.1\r\nAuthorization: good\r\n\r\n")
        assert (await read_response(good[0]))[0] == 200
        async with connected(server) as next_one:
            next_one[1].write(b"GET / HTTP/1.1\r\n\r\n")
            assert await idle[0].read() == b""
            assert (await read_response(next_one[0]))[0] == 200
        good[1].write(b"GET / HTTP/1.1\r\n\r\n")
        assert (await read_response(good[0]))[0] == 200


PROXY = [ipaddress.ip_network("127.0.0.1")]


@pytest.mark.parametrize("given", [b"known", b"good"])
async def test_authenticated_clients_behind_a_trusted_proxy_may_send_large_bodies(given: bytes) -> None:
    size = 9 * 2**20
    async with serve(trusted=PROXY) as server, connected(server) as (reader, writer):
        for _ in range(2):
            writer.write(b"POST /read HTTP/1.1\r\nAuthorization: %b\r\nContent-Length: %d\r\n\r\n" % (given, size))
            await write_on(writer, bytes(2**20), size)
            assert (await read_response(reader))[0] == 200


async def test_at_most_8_mib_of_unauthenticated_bodies_are_held(server: Server) -> None:
    head = b"POST /read HTTP/1.1\r\nContent-Length: 4000000\r\n\r\n"
    async with contextlib.AsyncExitStack() as stack:
        found = [await stack.enter_async_context(connected(server)) for _ in range(4)]
        for index, (_, writer) in enumerate(found):
            writer.write(head + bytes(2_500_000))
            await writer.drain()
            if index < 3:
                await soon(lambda count=index + 1: server.limiter._held >= count * 2_500_000)  # type: ignore[misc]
        assert (await read_response(found[3][0]))[0] == 429


async def test_a_request_refused_for_held_memory_is_not_executed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection_limiter, "MAX_HELD", 10)
    monkeypatch.setattr(connection_limiter, "HELD_EACH", 10)
    async with serve() as server, connected(server) as (reader, writer):
        writer.write(b"POST /read HTTP/1.1\r\nContent-Length: 20\r\n\r\n" + b"a" * 20)
        assert b" 429 " in await reader.readline()
        await reader.read()
        assert server.received.empty()


@pytest.mark.parametrize(
    "lines", [[b"192.0.2.1,192.0.2.2"], [b"192.0.2.1", b"192.0.2.2"], [b"192.0.2.2", b"127.0.0.1"]]
)
def test_forwarded_for_headers_on_several_lines_are_combined(lines: list[bytes]) -> None:
    limiter = ConnectionLimiter(UnauthenticatedSettings(), SystemClock(), connections=1, trusted=PROXY)
    admitted = limiter.admit("127.0.0.1", lambda: None)
    assert isinstance(admitted, connection_limiter.AdmittedConnection)
    limiter.admit_request(admitted, [(b"x-forwarded-for", line) for line in lines])
    assert admitted.payer == "192.0.2.2"


def test_an_untrusted_proxy_logs_one_warning_per_ten_minutes(caplog: pytest.LogCaptureFixture) -> None:
    clock = ManualClock()
    limiter = ConnectionLimiter(UnauthenticatedSettings(rate=0.0, rate_each=0.0), clock, connections=100, trusted=PROXY)

    def admit(peer: str, *headers: tuple[bytes, bytes]) -> None:
        admitted = limiter.admit(peer, lambda: None)
        assert isinstance(admitted, connection_limiter.AdmittedConnection)
        limiter.admit_request(admitted, headers)
        limiter.release_slot(admitted)

    def warnings() -> list[tuple[str, int]]:
        found = [vars(record) for record in caplog.records if record.message == "forwarded.not_trusted"]
        return [(record["peer"], record["requests"]) for record in found]

    forwarded = (b"x-forwarded-for", b"192.0.2.1")
    admit("127.0.0.1", forwarded)
    admit("10.0.0.7")
    assert warnings() == []
    admit("10.0.0.7", forwarded)
    admit("10.0.0.7", forwarded, (b"authorization", b"Bearer unknown"))
    assert warnings() == [("10.0.0.7", 1)]
    clock.advance(601)
    admit("10.0.0.8", forwarded)
    assert warnings() == [("10.0.0.7", 1), ("10.0.0.8", 2)]


def test_a_proxy_s_own_requests_have_a_separate_rate_limit() -> None:
    limits = UnauthenticatedSettings(rate=10.0, rate_each=10.0)
    limiter = ConnectionLimiter(limits, ManualClock(), connections=100, trusted=[ipaddress.ip_network("10.0.0.0/30")])

    def admit(peer: str, *forwarded: bytes) -> float:
        admitted = limiter.admit(peer, lambda: None)
        assert isinstance(admitted, connection_limiter.AdmittedConnection)
        wait = limiter.admit_request(admitted, [(b"x-forwarded-for", one) for one in forwarded])
        limiter.release_slot(admitted)
        return wait

    while (wait := admit("10.0.0.1", b"192.0.2.1")) <= 5.0:
        pass
    assert wait == math.inf
    assert admit("10.0.0.1", b"192.0.2.3") > 0, "all unknown addresses together are at their limit"
    # A client that names a proxy's address in the header still counts as a client.
    assert admit("10.0.0.1", b"10.0.0.2") > 0
    assert admit("10.0.0.1") == 0
    while admit("10.0.0.1") == 0:
        pass
    assert admit("10.0.0.2") == 0


async def test_a_connection_without_a_handshake_is_closed_for_another(tmp_path: Path) -> None:
    clock, context = ManualClock(), Authority().server_context(tmp_path, "localhost")
    limits = UnauthenticatedSettings(connections=1, rate=0.0, rate_each=0.0)
    async with serve(limits=limits, clock=clock, tls=context) as server, connected(server) as (reader, _):
        await soon(lambda: len(server.limiter) == 1)
        clock.advance(2)
        async with connected(server):
            # Long before the time limit of the handshake.
            async with asyncio.timeout(30):
                with contextlib.suppress(ConnectionError):
                    assert await reader.read() == b""
            await soon(lambda: len(server.limiter) == 1)


async def test_urgent_requests_are_dispatched_before_most_others(server: Server) -> None:
    order: list[str] = []
    async with contextlib.AsyncExitStack() as stack:
        found = [await stack.enter_async_context(connected(server)) for _ in range(4 * 16)]
        server.on_path = order.append
        for number, (_, writer) in enumerate(found):
            path = b"/urgent" if number == len(found) - 1 else b"/other"
            writer.write(b"GET " + path + b" HTTP/1.1\r\nHost: x\r\nAuthorization: known\r\n\r\n")
        for reader, _ in found:
            assert (await read_response(reader))[0] == 200
    assert len(order) == len(found)
    assert order.index("/urgent") < 2 * 16


KNOWN = b" HTTP/1.1\r\nHost: x\r\nAuthorization: known\r\n\r\n"


async def test_only_overloaded_paths_are_refused_and_the_connection_is_kept(server: Server) -> None:
    done: list[str] = []
    server.on_path = done.append
    server.crowded = {"/full"}
    async with connected(server) as (reader, writer):
        for path, status in (("/full", 503), ("/other", 200), ("/full", 503)):
            writer.write(b"GET " + path.encode() + KNOWN)
            assert (await read_response(reader))[0] == status
        server.crowded = set()
        writer.write(b"GET /full" + KNOWN)
        assert (await read_response(reader))[0] == 200
    assert done == ["/other", "/full"]


async def test_the_body_of_a_refused_request_is_skipped_and_the_next_request_served(server: Server) -> None:
    server.crowded = {"/full"}
    head = b"POST /full HTTP/1.1\r\nHost: x\r\nAuthorization: known\r\nContent-Length: 4000\r\n\r\n"
    async with connected(server) as (reader, writer):
        writer.write(head + b"x" * 100)
        assert (await read_response(reader))[0] == 503
        writer.write(b"x" * 3900 + b"GET /other" + KNOWN)
        assert (await read_response(reader))[0] == 200


async def test_a_request_with_a_delayed_refusal_is_served_if_the_overload_has_ended(server: Server) -> None:
    server.limiter.refusals = dispatch_limit.RefusalLimit(rate=100)
    server.crowded = {"/full"}
    async with connected(server) as (first, writer), connected(server) as (second, other):
        writer.write(b"GET /full" + KNOWN)
        assert (await read_response(first))[0] == 503
        other.write(b"GET /full" + KNOWN)
        server.crowded = set()
        assert (await read_response(second))[0] == 200


async def test_a_disconnect_cancels_a_delayed_refusal(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dispatch_limit, "INTERVAL", 60.0)
    server.limiter.refusals = dispatch_limit.RefusalLimit(rate=1 / 60)
    server.crowded = {"/full"}
    async with connected(server) as (first, writer):
        writer.write(b"GET /full" + KNOWN)
        assert (await read_response(first))[0] == 503
        async with connected(server) as (_, other):
            other.write(b"GET /full" + KNOWN)
            await soon(lambda: len(server.limiter.refusals) == 1)
        await soon(lambda: len(server.limiter) == 1)
        assert server.limiter.refusals._waiting[0][1]() is dispatch_limit.CANCELLED


async def test_the_dispatch_delay_counts_towards_the_overload_check(server: Server) -> None:
    delays: list[float] = []

    def is_overloaded(path: str, delay: float) -> bool:
        delays.append(delay)
        return delay > 0.0

    server.limiter.is_overloaded = is_overloaded
    # No request is dispatched until the test allows it.
    server.limiter.dispatch_limit = waiting = dispatch_limit.DispatchLimit(each=0)
    async with connected(server) as (first, writer), connected(server) as (second, other):
        writer.write(b"GET /other" + KNOWN)
        await soon(lambda: len(waiting) == 1)
        other.write(b"GET /other" + KNOWN)
        assert (await read_response(second))[0] == 503
        assert delays[0] == 0.0 < delays[1]
        waiting._each = 1
        waiting._next()
        assert (await read_response(first))[0] == 200


async def test_requests_beyond_the_dispatch_queue_limit_are_refused(server: Server) -> None:
    server.limiter.dispatch_limit = dispatch_limit.DispatchLimit(each=1, waiting=2)
    async with contextlib.AsyncExitStack() as stack:
        found = [await stack.enter_async_context(connected(server)) for _ in range(40)]
        for _, writer in found:
            writer.write(b"GET /other" + KNOWN)
        statuses = [(await read_response(reader))[0] for reader, _ in found]
    assert set(statuses) == {200, 503}


async def test_few_disconnected_clients_are_closed_per_event_loop_iteration(server: Server) -> None:
    server.limiter.closings = dispatch_limit.DispatchLimit(each=1, waiting=math.inf)
    async with contextlib.AsyncExitStack() as stack:
        for _ in range(20):
            reader, writer = await stack.enter_async_context(connected(server))
            writer.write(b"GET /other" + KNOWN)
            assert (await read_response(reader))[0] == 200
    left = [len(server.limiter)]
    async with asyncio.timeout(30):
        while left[-1]:
            await asyncio.sleep(0)
            left.append(len(server.limiter))
    assert {before - after for before, after in itertools.pairwise(left)} == {0, 1}


async def test_requests_of_disconnected_clients_are_not_dispatched(server: Server) -> None:
    paths: list[str] = []
    server.on_path = paths.append
    # No request is dispatched until the test allows it.
    server.limiter.dispatch_limit, server.limiter.closings = (
        dispatch_limit.DispatchLimit(each=0),
        dispatch_limit.DispatchLimit(each=0),
    )
    async with connected(server) as (reader, writer), connected(server) as (_, leaving):
        leaving.write(b"GET /gone" + KNOWN)
        leaving.write_eof()
        await soon(lambda: (len(server.limiter.dispatch_limit), len(server.limiter.closings)) == (1, 1))
        waiting, server.limiter.dispatch_limit = server.limiter.dispatch_limit, dispatch_limit.DispatchLimit()
        waiting._each = 1
        waiting._next()
        writer.write(b"GET /other" + KNOWN)
        assert (await read_response(reader))[0] == 200
    assert paths == ["/other"]
