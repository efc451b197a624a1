"""HTTP/1.1 connections: limits on unread requests and responses, order of responses, framing, upgrades, the stop."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import sys
import weakref

import pytest
from starlette.types import ASGIApp, Receive, Scope, Send

from harness import polling
from tests.http.support import Server, connected, read_response, serve, write_on
from tidings.http.exchange import RECEIVED

CHUNKED = b"POST %b HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n"


@pytest.mark.parametrize("piece", [b"a" * 8_192, b"A: a\r\n" * 1_000], ids=["one header", "many headers"])
@pytest.mark.parametrize(
    "begun",
    [b"GET / HTTP/1.1\r\nA: ", CHUNKED % b"/read" + b"2\r\nab\r\n0\r\nA: ", CHUNKED % b"/" + b"0\r\nA: "],
    ids=["before the body", "after the body", "after the body and the answer"],
)
async def test_endless_headers_close_the_connection(server: Server, begun: bytes, piece: bytes) -> None:
    async with connected(server) as (_, writer):
        writer.write(begun)
        with pytest.raises(ConnectionError):
            await write_on(writer, piece)


@pytest.mark.parametrize("more", [0, 1])
async def test_too_many_trailers_get_400_before_a_response_was_sent(server: Server, more: int) -> None:
    async with connected(server) as (reader, writer):
        writer.write(CHUNKED % b"/read" + b"2\r\nab\r\n")
        assert await server.received.get() == b"ab"
        writer.write(b"0\r\nA: ".ljust(64 * 1024 + more, b"a"))
        if not more:
            writer.write(b"\r\n\r\n")
        status, body = await read_response(reader)
        assert (status, b"headers after" in body) == ((400, True) if more else (200, False))


async def test_endless_empty_lines_close_the_connection(server: Server) -> None:
    async with connected(server) as (reader, writer):
        writer.write(b"GET / HTTP/1.1\r\n\r\n")
        assert await read_response(reader) == (200, b"")
        with pytest.raises(ConnectionError):
            await write_on(writer, b"\r\n" * 4_096)


async def test_chunk_extensions_and_trailers_do_not_count_as_head(server: Server) -> None:
    extended = b"1;" + b"e" * 30_000 + b"\r\nx\r\n"
    async with connected(server) as (reader, writer):
        for _ in range(2):
            writer.write(CHUNKED % b"/read")
            for _ in range(100):
                writer.write(extended)
                await writer.drain()
            writer.write(b"0\r\nA: " + b"a" * 30_000 + b"\r\n\r\n")
            assert await read_response(reader) == (200, b"x" * 100)


@pytest.mark.parametrize("begun", [b"", b"\r\n", b"GET / HT", b"GET / HTTP/1.1\r\n\r\nGET / HTTP/1.1\r\nA: a"])
async def test_a_head_timeout_closes_the_connection(begun: bytes) -> None:
    async with serve(head_timeout=0.05) as server, connected(server) as (reader, writer):
        writer.write(begun)
        assert (await reader.read()).count(b"200 OK") == begun.count(b"\r\n\r\n")


@pytest.mark.parametrize("rest", [b"b", b"bc", b"bc\r\n"], ids=["some", "all", "more"])
async def test_the_rest_of_a_request_with_an_early_response_does_not_keep_the_connection_open(rest: bytes) -> None:
    async with serve(keep_alive=1) as server, connected(server) as (reader, writer):
        writer.write(b"POST / HTTP/1.1\r\nContent-Length: 3\r\n\r\na")
        assert await read_response(reader) == (200, b"")
        writer.write(rest)
        assert await reader.read() == b""


async def test_many_pipelined_requests_may_ask_for_an_http_2_upgrade(server: Server) -> None:
    upgrade_request = b"POST /read HTTP/1.1\r\nConnection: Upgrade\r\nUpgrade: h2c\r\nContent-Length: 4\r\n\r\n%04d"
    async with connected(server) as (reader, writer):
        writer.write(b"".join(upgrade_request % n for n in range(2_500)))
        for n in range(2_500):
            assert await read_response(reader) == (200, b"%04d" % n)


def segments_of(writer: asyncio.StreamWriter) -> int:
    """Return the number of received segments with data (`tcpi_data_segs_in` in linux/tcp.h)."""
    information = writer.get_extra_info("socket").getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 156)
    return int.from_bytes(information[152:156], sys.byteorder)


async def test_a_response_s_head_and_body_are_sent_in_one_segment(server: Server) -> None:
    async with connected(server) as (reader, writer):
        for n in range(1, 4):
            writer.write(b"POST /read HTTP/1.1\r\nContent-Length: 2\r\n\r\nab")
            assert await read_response(reader) == (200, b"ab")
            assert segments_of(writer) == n


@pytest.mark.parametrize("start", [b"HEAD /", b"GET /nothing"])
async def test_the_head_of_a_response_without_a_body_is_sent(server: Server, start: bytes) -> None:
    async with connected(server) as (reader, writer):
        for _ in range(2):
            writer.write(start + b" HTTP/1.1\r\n\r\n")
            assert await read_response(reader) == (200, b"")


async def test_expect_100_continue_gets_a_100_response(server: Server) -> None:
    async with connected(server) as (reader, writer):
        writer.write(b"POST /read HTTP/1.1\r\nContent-Length: 2\r\nExpect: 100-continue\r\n\r\n")
        assert await reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
        writer.write(b"ab")
        assert await read_response(reader) == (200, b"ab")


@pytest.mark.parametrize(("first", "rest"), [(b"ab", b""), (b"a", b"b"), (b"", b"ab")])
async def test_the_scope_says_whether_the_body_was_complete(server: Server, first: bytes, rest: bytes) -> None:
    complete: asyncio.Queue[bool] = asyncio.Queue()

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        complete.put_nowait(RECEIVED in scope)
        body = b""
        while len(body) < 2:
            body += (await receive())["body"]
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
        await send({"type": "http.response.body", "body": body})

    server.apps["/"] = app
    async with connected(server) as (reader, writer):
        writer.write(b"POST / HTTP/1.1\r\nContent-Length: 2\r\n\r\n" + first)
        assert await complete.get() == (not rest)
        writer.write(rest)
        assert await read_response(reader) == (200, b"ab")


@pytest.mark.parametrize("path", [b"/", b"/read"])
async def test_at_most_16_pipelined_requests_are_read_ahead(server: Server, path: bytes) -> None:
    request = b"GET %b HTTP/1.1\r\nA: %b\r\n\r\n" % (path, b"a" * 200)
    count = 2**21 // len(request)
    longest = 0

    def measure() -> None:
        nonlocal longest
        longest = max(longest, len(server.protocol().pipeline))

    server.on_request = measure
    async with connected(server) as (reader, writer):
        writer.write(request * count)
        for _ in range(count):
            assert await read_response(reader) == (200, b"")
    assert server.served == count
    assert longest == 16


async def test_too_many_headers_are_refused_even_in_an_unfinished_head(server: Server) -> None:
    for end in (b"\r\n", b""):
        async with connected(server) as (reader, writer):
            writer.write(b"GET / HTTP/1.1\r\n" + b"A: a\r\n" * (128 + 2) + end)
            assert (await read_response(reader))[0] == 400
    async with connected(server) as (reader, writer):
        writer.write(b"GET / HTTP/1.1\r\n" + b"A: a\r\n" * 128 + b"\r\n")
        assert (await read_response(reader))[0] == 200


@pytest.mark.parametrize("sent", [b"GET /\r\n", b"GET /\r\n\r\n", b"GET / HTTP/0.9\r\n\r\n"])
async def test_http_0_9_is_refused(server: Server, sent: bytes) -> None:
    async with connected(server) as (reader, writer):
        writer.write(sent)
        assert (await read_response(reader))[0] == 400
        assert await reader.read() == b""
    assert server.served == 0


async def test_a_client_that_does_not_read_is_not_read_and_is_disconnected() -> None:
    async with serve(stalled=0.2) as server, connected(server) as (_, writer):
        body = b"x" * 1_000_000
        writer.write(b"POST /read HTTP/1.1\r\nAuthorization: good\r\nContent-Length: %d\r\n\r\n" % len(body))
        with pytest.raises(ConnectionError):
            await write_on(writer, body + b"POST /read HTTP/1.1\r\nContent-Length: %d\r\n\r\n" % len(body), 2**27)
        assert server.served < 100


async def test_a_client_that_reads_slowly_is_served() -> None:
    async with serve(stalled=0.3) as server, connected(server) as (reader, writer):
        body = b"x" * 8_000_000
        writer.write(b"POST /read HTTP/1.1\r\nAuthorization: good\r\nContent-Length: %d\r\n\r\n" % len(body))
        writer.write(body)
        await reader.readuntil(b"\r\n\r\n")
        left = len(body)
        while left > 0:
            # Each read takes less than what was written, and comes within the time limit of the one before.
            left -= len(await reader.read(1_000_000))
            await asyncio.sleep(0.02)


async def test_the_unread_rest_of_a_body_is_discarded(server: Server) -> None:
    async with connected(server) as (reader, writer):
        writer.write(b"POST / HTTP/1.1\r\nContent-Length: 200000\r\n\r\n" + b"x" * 100_000)
        assert await read_response(reader) == (200, b"")
        writer.write(b"x" * 100_000 + b"GET / HTTP/1.1\r\n\r\n")
        exchange = server.protocol().exchange
        assert exchange is not None
        assert not exchange.body
        assert await read_response(reader) == (200, b"")


async def test_a_closed_connection_is_freed(server: Server, no_collector: None) -> None:
    async with connected(server) as (reader, writer):
        writer.write(b"GET / HTTP/1.1\r\n\r\n")
        assert await read_response(reader) == (200, b"")
        kept = weakref.ref(server.protocol())
    await polling.until(lambda: kept() is None)


# Two requests on one connection. The first has trailers: one with a value, one without, and one that would log it in.
# The second has a header whose name is the start of one that the application knows.
WITH_TRAILERS = (
    b"POST /read HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n%b\r\n2\r\nab\r\n0\r\n"
    b"X-Trailer: 1\r\nX-Empty:\r\nAuthorization: good\r\n\r\nGET /next HTTP/1.1\r\nHost: b\r\n\r\n"
)


@pytest.mark.parametrize("is_seen_between", [False, True], ids=["at once", "the application runs between"])
@pytest.mark.parametrize("upgrade", [b"", b"Connection: Upgrade\r\nUpgrade: h2c\r\n"], ids=["plain", "h2c"])
async def test_trailers_never_become_headers_wherever_the_bytes_are_split(
    server: Server, upgrade: bytes, is_seen_between: bool
) -> None:
    sent = WITH_TRAILERS % upgrade
    known = [b"host", b"transfer-encoding", *([b"connection", b"upgrade"] if upgrade else [])]
    async with connected(server) as (reader, _):
        await polling.until(lambda: len(server.server_state.connections) == 1)
        protocol = server.protocol()
        for position in range(len(sent)):
            server.headers.clear()
            protocol.data_received(sent[:position])
            if is_seen_between:
                for _ in range(3):
                    await asyncio.sleep(0)
            protocol.data_received(sent[position:])
            assert await read_response(reader) == (200, b"ab"), position
            assert await read_response(reader) == (200, b""), position
            names = [[name for name, _ in headers] for headers in server.headers]
            assert names == [known, [b"host"]], position


def app_of(*messages: dict[str, object]) -> ASGIApp:
    """Return an application that sends these messages and fails behind them."""

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        for message in messages:
            await send(message)
        raise LookupError("the application fails")

    return app


START = {"type": "http.response.start", "status": 200}
PART = {"type": "http.response.body", "body": b"part", "more_body": True}
END = {"type": "http.response.body", "body": b"end"}


async def read_all(server: Server, sent: bytes) -> bytes:
    """Return everything that the server writes until it closes the connection."""
    async with connected(server) as (reader, writer):
        writer.write(sent)
        return await reader.read()


async def holding(server: Server) -> asyncio.Event:
    """Add an application at `/held` that responds once the returned event is set."""
    go_on = asyncio.Event()

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await go_on.wait()
        await send({**START, "headers": [(b"content-length", b"3")]})
        await send(END)

    server.apps["/held"] = app
    return go_on


@pytest.mark.parametrize(
    "wrong",
    [b"nonsense\r\n\r\n", b"GET /\xff HTTP/1.1\r\n\r\n", CHUNKED % b"/read" + b"no size\r\n"],
    ids=["no request", "no URL", "no chunk"],
)
async def test_a_refusal_follows_the_responses_to_earlier_requests(server: Server, wrong: bytes) -> None:
    go_on = await holding(server)
    async with connected(server) as (reader, writer):
        writer.write(b"GET /held HTTP/1.1\r\n\r\nGET /other HTTP/1.1\r\n\r\n" + wrong)
        await polling.until(lambda: server.served == 1)
        go_on.set()
        assert await read_response(reader) == (200, b"end")
        assert await read_response(reader) == (200, b"")
        assert (await read_response(reader))[0] == 400
        assert await reader.read() == b""
    assert server.served == 2


async def test_behind_a_refused_request_nothing_is_served(server: Server) -> None:
    received = await read_all(server, b"GET / HTTP/0.9\r\n\r\n" + b"GET / HTTP/1.1\r\n\r\n" * 3)
    assert received.count(b"HTTP/1.1 ") == received.count(b"HTTP/1.1 400 ") == 1
    assert server.served == 0


async def test_an_invalid_chunk_is_refused_once_and_the_application_is_notified(server: Server) -> None:
    async with connected(server) as (reader, writer):
        writer.write(CHUNKED % b"/read" + b"2\r\nab\r\n")
        assert await server.received.get() == b"ab"
        writer.write(b"no size\r\n")
        received = await reader.read()
    assert received.startswith(b"HTTP/1.1 400 ")
    assert received.count(b"HTTP/1.1 ") == 1
    await polling.until(lambda: not server.server_state.tasks)


async def test_requests_behind_one_with_connection_close_get_no_response(server: Server) -> None:
    closing = b"GET / HTTP/1.1\r\nConnection: close\r\n\r\n"
    received = (await read_all(server, closing + b"GET / HTTP/1.1\r\n\r\n")).lower()
    assert received.count(b"http/1.1 200") == 1
    assert received.count(b"connection: close\r\n") == 1


@pytest.mark.parametrize("line", [b"", b"Connection: keep-alive\r\n"])
async def test_a_client_of_http_1_0_gets_a_body_that_ends_with_the_connection(server: Server, line: bytes) -> None:
    server.apps["/parts"] = app_of(START, PART, END)
    head, _, body = (await read_all(server, b"GET /parts HTTP/1.0\r\n" + line + b"\r\n")).partition(b"\r\n\r\n")
    assert body == b"partend"
    assert b"transfer-encoding" not in head.lower()


async def test_a_body_of_unknown_length_is_chunked_and_the_connection_stays(server: Server) -> None:
    server.apps["/parts"] = app_of(START, PART, END)
    async with connected(server) as (reader, writer):
        for _ in range(2):
            writer.write(b"GET /parts HTTP/1.1\r\n\r\n")
            assert b"transfer-encoding: chunked\r\n" in await reader.readuntil(b"\r\n\r\n")
            assert await reader.readuntil(b"0\r\n\r\n") == b"4\r\npart\r\n3\r\nend\r\n0\r\n\r\n"


@pytest.mark.parametrize(
    "messages",
    [
        [],
        [START],
        [PART],
        [{**START, "headers": [(b"x", b"a\r\nset-cookie: b")]}],
        [{**START, "headers": [(b"x: y\r\nz", b"a")]}],
        [{**START, "headers": [(b"content-length", b"2")]}, END],
    ],
    ids=["nothing", "a head", "no head", "a value with a line break", "a name with a line break", "a long body"],
)
async def test_an_application_that_fails_before_writing_gets_500(
    server: Server, messages: list[dict[str, object]], caplog: pytest.LogCaptureFixture
) -> None:
    server.apps["/wrong"] = app_of(*messages)
    received = await read_all(server, b"GET /wrong HTTP/1.1\r\n\r\n")
    assert received.startswith(b"HTTP/1.1 500 ")
    assert received.count(b"HTTP/1.1 ") == 1
    assert b"set-cookie" not in received
    assert [(record.message, record.__dict__["path"]) for record in caplog.records] == [
        ("http.application_failed", "/wrong")
    ]


async def test_an_application_that_fails_within_a_response_ends_the_connection(server: Server) -> None:
    server.apps["/wrong"] = app_of(START, PART)
    received = await read_all(server, b"GET /wrong HTTP/1.1\r\n\r\n")
    assert received.startswith(b"HTTP/1.1 200 ")
    assert received.endswith(b"4\r\npart\r\n")


async def test_a_stop_closes_idle_connections_and_lets_requests_in_progress_finish() -> None:
    async with contextlib.AsyncExitStack() as stack:
        server = await stack.enter_async_context(serve(grace=30.0))
        go_on = await holding(server)
        idle = await stack.enter_async_context(connected(server))
        busy = await stack.enter_async_context(connected(server))
        busy[1].write(b"GET /held HTTP/1.1\r\n\r\n")
        await polling.until(lambda: server.served == 1)
        server.stop.set()
        assert await idle[0].read() == b""
        assert not busy[0].at_eof()
        go_on.set()
        received = await busy[0].read()
        assert received.startswith(b"HTTP/1.1 200 ")
        assert b"connection: close\r\n" in received.lower()


async def test_a_stop_cancels_requests_that_take_longer_than_the_grace_period(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with serve(grace=0.1) as server:
        await holding(server)
        async with connected(server) as (reader, writer):
            writer.write(b"GET /held HTTP/1.1\r\n\r\n")
            await polling.until(lambda: server.served == 1)
            server.stop.set()
            assert (await reader.read()).startswith(b"HTTP/1.1 500 ")
    assert "http.requests_cancelled" in [record.message for record in caplog.records]
