"""Responses are bounded in every form, for posts and for downloads. The limits are those of docs/limits.md."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
import time
from pathlib import Path

import pytest

from coreapp.webhook.poster import Poster
from tests import hostile_responses
from tests.authority import Authority
from tests.coreapp.signals import soon
from tests.hostile_responses import BODIES, HEADS, Form, HostileHost
from tests.live_objects import live_objects
from tidings.egress import addresses
from tidings.egress.download import Downloader
from tidings.egress.guard import EgressGuard
from tidings.egress.responses import BadResponse, ContentParser, EgressConnection, ReadCpuLimit, ResponseParser
from tidings.egress.settings import OutgoingSettings

KIB = 1024
MIB = 1024 * KIB
# Bytes that count as sent include the sockets' buffers. The host sends as fast as it can.
SENT = 8 * MIB
GUARD = EgressGuard(OutgoingSettings(addresses.LOOPBACK))
OK = b"HTTP/1.1 200 OK\r\n"
END = b"Content-Length: 0\r\n\r\n"
CHUNKED = OK + b"Transfer-Encoding: chunked\r\n\r\n"


def parsed(*parts: bytes) -> ContentParser:
    parser = ContentParser()
    for part in parts:
        parser.feed(part)
    return parser


def at_line_speed(forms: dict[str, Form]) -> list[str]:
    return [name for name, form in forms.items() if not form.dribbled]


@pytest.mark.parametrize("form", at_line_speed(HEADS))
async def test_an_endless_head_fails_a_post_at_once(form: str) -> None:
    poster = Poster(GUARD, timeout=30)
    with HostileHost(HEADS[form]) as host:
        with pytest.raises(BadResponse):
            await poster.post(host.url, {}, b"{}")
        assert host.sent < SENT
    poster.close()


@pytest.mark.parametrize("form", at_line_speed(HEADS))
async def test_an_endless_head_is_freed_without_interpreter_gc(form: str, no_collector: None) -> None:
    poster = Poster(GUARD, timeout=30)
    with HostileHost(HEADS[form]) as host:
        for _ in range(5):
            # `pytest.raises` would keep the exception with its frames.
            with contextlib.suppress(BadResponse):
                await poster.post(host.url, {}, b"{}")
    poster.close()
    # Each kept up to 32 KiB: a Coreapp grew by 150 MiB between two collections.
    await soon(lambda: not live_objects(ResponseParser) and not live_objects(EgressConnection), 10)


@pytest.mark.parametrize("form", at_line_speed(BODIES))
async def test_an_endless_body_costs_a_post_only_its_connection(form: str) -> None:
    poster = Poster(GUARD, timeout=30)
    with HostileHost(BODIES[form]) as host:
        try:
            assert await poster.post(host.url, {}, b"{}") == 200
        except BadResponse:
            assert "trailer" in form
        assert host.sent < SENT
        assert not poster._idle
    poster.close()


@pytest.mark.parametrize("form", at_line_speed({**HEADS, **BODIES}))
async def test_an_endless_response_fails_a_download_at_once(form: str) -> None:
    with HostileHost({**HEADS, **BODIES}[form]) as host:
        with pytest.raises(BadResponse):
            async with Downloader(GUARD).fetch(host.url, limit=100 * MIB, seconds=60) as response:
                async for _ in response.chunks():
                    pass
        assert host.sent < SENT


@pytest.mark.parametrize("parser", [ResponseParser, ContentParser])
@pytest.mark.parametrize(
    ("allowed", "refused"),
    [
        (OK + b"X: y\r\n" * 99 + END, OK + b"X: y\r\n" * 100 + END),
        (OK + b"X: " + b"y" * 32_000 + b"\r\n" + END, OK + b"X: " + b"y" * 33_000 + b"\r\n" + END),
        (b"HTTP/1.1 102 Wait\r\n\r\n" * 8 + OK + END, b"HTTP/1.1 102 Wait\r\n\r\n" * 9 + OK + END),
    ],
    ids=["headers", "bytes of a head", "interim responses"],
)
@pytest.mark.parametrize("size", [MIB, 1000, 7])
def test_a_head_within_its_limits_is_parsed_and_one_beyond_is_rejected(
    parser: type[ResponseParser], allowed: bytes, refused: bytes, size: int
) -> None:
    def feed(data: bytes) -> ResponseParser:
        made = parser()
        for start in range(0, len(data), size):
            made.feed(data[start : start + size])
        return made

    assert feed(allowed).is_complete
    with pytest.raises(BadResponse):
        feed(refused)


def test_at_most_100_trailers_are_accepted() -> None:
    chunk = CHUNKED + b"2\r\nok\r\n0\r\n"
    assert parsed(chunk + b"X: y\r\n" * 100 + b"\r\n").is_complete
    with pytest.raises(BadResponse, match="trailers"):
        parsed(chunk + b"X: y\r\n" * 101 + b"\r\n")


def test_lines_of_a_body_do_not_count_as_headers() -> None:
    body = b"line\n" * 1000
    for parser in (ResponseParser(), ContentParser()):
        parser.feed(OK + b"Content-Length: 5000\r\n\r\n" + body)
        assert parser.is_complete
        assert parser.keep_alive


def test_too_many_small_chunks_are_rejected() -> None:
    parsed(CHUNKED, b"1\r\nx\r\n" * 4_000)
    with pytest.raises(BadResponse, match="too small"):
        parsed(CHUNKED, b"1\r\nx\r\n" * 11_000)
    # Small chunks of a few lines each are no attack, however many.
    parsed(CHUNKED, *[b"50\r\n" + b"x" * 80 + b"\r\n"] * 10_000)


def test_chunk_overhead_is_limited_relative_to_the_content() -> None:
    parsed(CHUNKED, *[b"1000;" + b"e" * 4_000 + b"\r\n" + b"x" * 4_096 + b"\r\n"] * 100)
    with pytest.raises(BadResponse, match="overhead"):
        parsed(CHUNKED, *[b"10;" + b"e" * 4_000 + b"\r\n" + b"x" * 16 + b"\r\n"] * 40)


@pytest.mark.parametrize(
    "rest", [OK + END, OK, b"H", b"garbage", b"HTTP/1.1 102 Processing\r\n\r\n"], ids=lambda rest: rest[:12].decode()
)
def test_bytes_after_a_response_are_dropped_and_end_the_connection(rest: bytes) -> None:
    parser = parsed(OK + b"Content-Length: 2\r\n\r\nok" + rest)
    assert (parser.status, parser.is_complete, parser.keep_alive) == (200, True, False)
    assert parser.take_content() == b"ok"


def test_each_response_on_a_reused_connection_has_its_own_limits() -> None:
    parser = ResponseParser()
    for status in (200, 500) * 50:
        parser.begin()
        parser.feed(b"HTTP/1.1 102 Processing\r\n\r\n" * 8)
        parser.feed(b"HTTP/1.1 %d Some\r\n%b%b" % (status, b"X: y\r\n" * 90, END))
        assert (parser.status, parser.is_complete, parser.keep_alive) == (status, True, True)


def test_chunks_of_one_read_are_joined() -> None:
    parser = parsed(CHUNKED + b"1\r\nf\r\n1\r\ni\r\n2\r\nle\r\n0\r\n\r\n")
    assert parser.take_content() == b"file"
    assert parser.take_content() == b""


async def test_reads_are_limited_to_a_twenty_fifth_of_a_core() -> None:
    cpu_limit = ReadCpuLimit()
    waits = [cpu_limit.consume(0.001) for _ in range(200)]
    assert waits[0] == 0.0
    # The reads took 0.2 s in total. Half a second of the CPU share was saved up.
    assert 0.2 / (waits[-1] + 0.5) <= 0.041


class Reads(asyncio.Protocol):
    """Reads of a connection, counted."""

    def __init__(self, connection: EgressConnection) -> None:
        self._connection = connection
        self.count = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._connection.connection_made(transport)

    def data_received(self, data: bytes) -> None:
        self.count += 1
        self._connection.data_received(data)

    def connection_lost(self, exc: Exception | None) -> None:
        self._connection.connection_lost(exc)


# Without TLS each small read is followed by a pause of 10 ms. Over TLS reads of 250 µs use 4 % of a core at 160 per
# second, and half a second's worth was saved up.
@pytest.mark.parametrize(("secure", "most"), [(False, 8 + 100 + 1), (True, 8 + 1.5 * 160)], ids=["plain", "TLS"])
async def test_a_sender_of_single_bytes_is_read_at_the_rate_limit(tmp_path: Path, secure: bool, most: float) -> None:
    form, authority = hostile_responses.SILENT["content byte by byte"], Authority()
    context = ssl.create_default_context(cadata=authority.pem.decode()) if secure else None
    with HostileHost(form, authority.server_context(tmp_path, "127.0.0.1") if secure else None) as host:
        connection = EgressConnection(ContentParser(), ReadCpuLimit())
        loop = asyncio.get_running_loop()
        _, reads = await loop.create_connection(lambda: Reads(connection), "127.0.0.1", host.port, ssl=context)
        started = time.monotonic()
        await connection.send(b"GET / HTTP/1.1\r\n\r\n")
        while time.monotonic() - started < 1.0:
            await connection.read()
        # A busy machine may take longer than one second.
        assert reads.count <= most + (time.monotonic() - started - 1.0) * most
        connection.abort()


async def test_the_connection_does_not_read_without_a_waiting_consumer() -> None:
    with HostileHost(hostile_responses.BOMB["compressed content"]) as host:
        parser = ContentParser()
        connection = EgressConnection(parser, ReadCpuLimit())
        loop = asyncio.get_running_loop()
        _, reads = await loop.create_connection(lambda: Reads(connection), "127.0.0.1", host.port)
        await connection.send(b"GET / HTTP/1.1\r\n\r\n")
        for _ in range(1000):
            await asyncio.sleep(0)
        assert reads.count == 1
        connection.abort()
