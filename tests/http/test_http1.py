"""Memory that a server uses for requests that it has not read, and clients that request HTTP/2."""

from __future__ import annotations

import asyncio
import socket
import sys
import weakref

import pytest

from harness import polling
from tests.http.http1_support import Server, answer, connected, serve, write_on

CHUNKED = b"POST %b HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n"


@pytest.mark.parametrize("piece", [b"a" * 8_192, b"A: a\r\n" * 1_000], ids=["one header", "many headers"])
@pytest.mark.parametrize(
    "begun",
    [b"GET / HTTP/1.1\r\nA: ", CHUNKED % b"/read" + b"2\r\nab\r\n0\r\nA: ", CHUNKED % b"/" + b"0\r\nA: "],
    ids=["before the body", "after the body", "after the body and the answer"],
)
async def test_headers_without_an_end_are_not_kept(server: Server, begun: bytes, piece: bytes) -> None:
    async with connected(server) as (_, writer):
        writer.write(begun)
        with pytest.raises(ConnectionError):
            await write_on(writer, piece)


@pytest.mark.parametrize("more", [0, 1])
async def test_whose_headers_after_the_body_are_too_many_is_told_so_if_there_was_no_answer(
    server: Server, more: int
) -> None:
    async with connected(server) as (reader, writer):
        writer.write(CHUNKED % b"/read" + b"2\r\nab\r\n")
        assert await server.received.get() == b"ab"
        writer.write(b"0\r\nA: ".ljust(64 * 1024 + more, b"a"))
        if not more:
            writer.write(b"\r\n\r\n")
        status, body = await answer(reader)
        assert (status, b"headers after" in body) == ((400, True) if more else (200, False))


async def test_empty_lines_without_an_end_are_not_read(server: Server) -> None:
    async with connected(server) as (reader, writer):
        writer.write(b"GET / HTTP/1.1\r\n\r\n")
        assert await answer(reader) == (200, b"")
        with pytest.raises(ConnectionError):
            await write_on(writer, b"\r\n" * 4_096)


async def test_what_is_wrapped_around_a_long_body_is_no_long_head(server: Server) -> None:
    extended = b"1;" + b"e" * 30_000 + b"\r\nx\r\n"
    async with connected(server) as (reader, writer):
        for _ in range(2):
            writer.write(CHUNKED % b"/read")
            for _ in range(100):
                writer.write(extended)
                await writer.drain()
            writer.write(b"0\r\nA: " + b"a" * 30_000 + b"\r\n\r\n")
            assert await answer(reader) == (200, b"x" * 100)


@pytest.mark.parametrize("begun", [b"", b"\r\n", b"GET / HT", b"GET / HTTP/1.1\r\n\r\nGET / HTTP/1.1\r\nA: a"])
async def test_a_head_that_does_not_come_in_time_ends_the_connection(begun: bytes) -> None:
    async with serve(head_timeout=0.05) as server, connected(server) as (reader, writer):
        writer.write(begun)
        assert (await reader.read()).count(b"200 OK") == begun.count(b"\r\n\r\n")


@pytest.mark.parametrize("rest", [b"b", b"bc", b"bc\r\n"], ids=["some", "all", "more"])
async def test_the_rest_of_a_request_that_was_answered_early_does_not_keep_the_connection_open(rest: bytes) -> None:
    async with serve(keep_alive=1) as server, connected(server) as (reader, writer):
        writer.write(b"POST / HTTP/1.1\r\nContent-Length: 3\r\n\r\na")
        assert await answer(reader) == (200, b"")
        writer.write(rest)
        assert await reader.read() == b""


async def test_any_number_of_requests_in_one_write_may_ask_for_http_2(server: Server) -> None:
    asking = b"POST /read HTTP/1.1\r\nConnection: Upgrade\r\nUpgrade: h2c\r\nContent-Length: 4\r\n\r\n%04d"
    async with connected(server) as (reader, writer):
        writer.write(b"".join(asking % n for n in range(2_500)))
        for n in range(2_500):
            assert await answer(reader) == (200, b"%04d" % n)


def segments_of(writer: asyncio.StreamWriter) -> int:
    """Return the number of received segments with data (`tcpi_data_segs_in` in linux/tcp.h)."""
    information = writer.get_extra_info("socket").getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 156)
    return int.from_bytes(information[152:156], sys.byteorder)


async def test_the_head_of_an_answer_and_its_body_come_in_one_segment(server: Server) -> None:
    async with connected(server) as (reader, writer):
        for n in range(1, 4):
            writer.write(b"POST /read HTTP/1.1\r\nContent-Length: 2\r\n\r\nab")
            assert await answer(reader) == (200, b"ab")
            assert segments_of(writer) == n


@pytest.mark.parametrize("asked", [b"HEAD /", b"GET /nothing"])
async def test_the_head_of_an_answer_without_a_body_comes_too(server: Server, asked: bytes) -> None:
    async with connected(server) as (reader, writer):
        for _ in range(2):
            writer.write(asked + b" HTTP/1.1\r\n\r\n")
            assert await answer(reader) == (200, b"")


async def test_who_waits_to_be_told_to_go_on_is_told(server: Server) -> None:
    async with connected(server) as (reader, writer):
        writer.write(b"POST /read HTTP/1.1\r\nContent-Length: 2\r\nExpect: 100-continue\r\n\r\n")
        assert await reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
        writer.write(b"ab")
        assert await answer(reader) == (200, b"ab")


@pytest.mark.parametrize("path", [b"/", b"/read"])
async def test_requests_that_wait_for_others_are_not_read_without_end(server: Server, path: bytes) -> None:
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
            assert await answer(reader) == (200, b"")
    assert server.served == count
    assert longest == 16


async def test_more_headers_than_that_are_refused_whether_their_head_ends_or_not(server: Server) -> None:
    for end in (b"\r\n", b""):
        async with connected(server) as (reader, writer):
            writer.write(b"GET / HTTP/1.1\r\n" + b"A: a\r\n" * (128 + 2) + end)
            assert (await answer(reader))[0] == 400
    async with connected(server) as (reader, writer):
        writer.write(b"GET / HTTP/1.1\r\n" + b"A: a\r\n" * 128 + b"\r\n")
        assert (await answer(reader))[0] == 200


@pytest.mark.parametrize("sent", [b"GET /\r\n", b"GET /\r\n\r\n", b"GET / HTTP/0.9\r\n\r\n"])
async def test_http_0_9_is_refused(server: Server, sent: bytes) -> None:
    async with connected(server) as (reader, writer):
        writer.write(sent)
        assert (await answer(reader))[0] == 400
        assert await reader.read() == b""
    assert server.served == 0


async def test_who_does_not_read_is_not_read_and_is_cut_off() -> None:
    async with serve(stalled=0.2) as server, connected(server) as (_, writer):
        body = b"x" * 1_000_000
        writer.write(b"POST /read HTTP/1.1\r\nAuthorization: good\r\nContent-Length: %d\r\n\r\n" % len(body))
        with pytest.raises(ConnectionError):
            await write_on(writer, body + b"POST /read HTTP/1.1\r\nContent-Length: %d\r\n\r\n" % len(body), 2**27)
        assert server.served < 100


async def test_who_reads_slowly_is_served() -> None:
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


async def test_what_nobody_will_read_is_not_kept(server: Server) -> None:
    async with connected(server) as (reader, writer):
        writer.write(b"POST / HTTP/1.1\r\nContent-Length: 200000\r\n\r\n" + b"x" * 100_000)
        assert await answer(reader) == (200, b"")
        writer.write(b"x" * 100_000 + b"GET / HTTP/1.1\r\n\r\n")
        assert not server.protocol().cycle.body
        assert await answer(reader) == (200, b"")


async def test_what_is_kept_of_a_connection_goes_with_it(server: Server, no_collector: None) -> None:
    async with connected(server) as (reader, writer):
        writer.write(b"GET / HTTP/1.1\r\n\r\n")
        assert await answer(reader) == (200, b"")
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
            assert await answer(reader) == (200, b"ab"), position
            assert await answer(reader) == (200, b""), position
            names = [[name for name, _ in headers] for headers in server.headers]
            assert names == [known, [b"host"]], position
