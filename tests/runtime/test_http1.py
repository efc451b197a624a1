"""What a server keeps of requests that it has not looked at, and clients that ask for HTTP/2."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import ipaddress
import socket
import ssl
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import uvicorn
from starlette.types import Receive, Scope, Send

from tests.authority import Authority
from tests.coreapp.signals import soon
from tidings.runtime import door, http1, http_server, turns
from tidings.runtime.clock import Clock, ManualClock, SystemClock
from tidings.runtime.door import Door
from tidings.runtime.settings import StrangerSettings
from tidings.runtime.strangers import Network

UNLIMITED = StrangerSettings(rate=0.0, rate_each=0.0)


class Server(http_server.Server):
    """Its application takes a request's body only if the path is `/read`, and answers with what came of it.

    A request with `Authorization: good` has logged in, and so has one with `known`, which the door recognises.
    """

    def __init__(
        self,
        listener: socket.socket,
        *,
        keep_alive: int = 60,
        connections: int = 1_000,
        limits: StrangerSettings = UNLIMITED,
        trusted: Sequence[Network] = (),
        clock: Clock | None = None,
        tls: ssl.SSLContext | None = None,
        **options: float,
    ) -> None:
        # Paths that too many ask for.
        self.crowded: set[str] = set()
        self.door = Door(
            limits,
            clock or SystemClock(),
            connections=connections,
            trusted=trusted,
            recognise=lambda given: given == b"known",
            urgent=("/urgent",),
            is_crowded=lambda path: path in self.crowded,
        )
        super().__init__(
            uvicorn.Config(
                self._app,
                interface="asgi3",
                http=functools.partial(http1.BoundedProtocol, door=self.door, **options),  # type: ignore[arg-type]
                ws="none",
                lifespan="off",
                log_config=None,
                timeout_keep_alive=keep_alive,
                timeout_graceful_shutdown=1,
            ),
            self.door,
        )
        self.tls = tls
        self.port = listener.getsockname()[1]
        self.served = 0
        self.received: asyncio.Queue[bytes] = asyncio.Queue()
        self.on_request: Callable[[], Any] = lambda: None
        self.on_path: Callable[[str], Any] = lambda path: None
        self.started_serving = asyncio.Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.started_serving.set()

    def protocol(self) -> http1.BoundedProtocol:
        """Of the only connection."""
        (protocol,) = self.server_state.connections
        assert isinstance(protocol, http1.BoundedProtocol)
        return protocol

    async def _app(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.served += 1
        self.on_request()
        self.on_path(scope["path"])
        if (b"authorization", b"good") in scope["headers"]:
            scope[http1.VISITOR].proved()
        body = b""
        while scope["path"] == "/read":
            message = await receive()
            if message["type"] == "http.disconnect":
                return
            body += message["body"]
            self.received.put_nowait(message["body"])
            if not message["more_body"]:
                break
        length = str(len(body)).encode()
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", length)]})
        await send({"type": "http.response.body", "body": body})


@contextlib.asynccontextmanager
async def serve(**options: Any) -> AsyncIterator[Server]:
    listener = socket.create_server(("127.0.0.1", 0))
    server = Server(listener, **options)
    serving = asyncio.create_task(server.serve([listener]))
    await asyncio.wait_for(server.started_serving.wait(), 10)
    yield server
    server.should_exit = True
    await serving


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    async with serve() as server:
        yield server


@contextlib.asynccontextmanager
async def connected(server: Server) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    async with asyncio.timeout(20):
        yield reader, writer
    writer.transport.abort()


async def answer(reader: asyncio.StreamReader) -> tuple[int, bytes]:
    head = (await reader.readuntil(b"\r\n\r\n")).lower()
    length = int(head.partition(b"content-length: ")[2].partition(b"\r\n")[0])
    return int(head.split()[1]), await reader.readexactly(length)


async def write_on(writer: asyncio.StreamWriter, piece: bytes, size: int = 16 * 2**20) -> None:
    """Raises `ConnectionError` once the other side has closed."""
    for _ in range(size // len(piece)):
        writer.write(piece)
        await writer.drain()


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
        writer.write(b"0\r\nA: ".ljust(http1.MAX_HEAD + more, b"a"))
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
    assert longest == http1.MAX_PIPELINED


async def test_more_headers_than_that_are_refused_whether_their_head_ends_or_not(server: Server) -> None:
    for end in (b"\r\n", b""):
        async with connected(server) as (reader, writer):
            writer.write(b"GET / HTTP/1.1\r\n" + b"A: a\r\n" * (http1.MAX_HEADERS + 2) + end)
            assert (await answer(reader))[0] == 400
    async with connected(server) as (reader, writer):
        writer.write(b"GET / HTTP/1.1\r\n" + b"A: a\r\n" * http1.MAX_HEADERS + b"\r\n")
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
            # Each is less than what was written, and comes within the time of the one before.
            left -= len(await reader.read(1_000_000))
            await asyncio.sleep(0.02)


async def test_what_nobody_will_read_is_not_kept(server: Server) -> None:
    async with connected(server) as (reader, writer):
        writer.write(b"POST / HTTP/1.1\r\nContent-Length: 200000\r\n\r\n" + b"x" * 100_000)
        assert await answer(reader) == (200, b"")
        writer.write(b"x" * 100_000 + b"GET / HTTP/1.1\r\n\r\n")
        assert not server.protocol().cycle.body
        assert await answer(reader) == (200, b"")


async def test_requests_of_strangers_have_their_turn_and_those_of_others_do_not_wait() -> None:
    limits = StrangerSettings(rate=0.0, rate_each=10.0)
    request = b"GET / HTTP/1.1\r\n\r\n"
    async with serve(limits=limits) as server, connected(server) as stranger, connected(server) as other:
        # A full bucket, and what they cost besides.
        stranger[1].write(request * 400)
        while server.served < 150:
            assert (await answer(stranger[0]))[0] == 200
        before = server.served
        for authorization in (b"known", b"none", b"none"):
            other[1].write(b"GET / HTTP/1.1\r\nAuthorization: %b\r\n\r\n" % authorization)
            assert (await answer(other[0]))[0] == 200
        assert server.served - before < 100


async def test_a_request_that_would_wait_too_long_is_refused() -> None:
    limits = StrangerSettings(rate=0.0, rate_each=0.01)
    async with serve(limits=limits) as server, connected(server) as (reader, writer):
        writer.write(b"GET / HTTP/1.1\r\n\r\n" * 2)
        assert [(await answer(reader))[0] for _ in range(2)] == [200, 429]
        assert await reader.read() == b""
        assert server.served == 1


async def test_connections_beyond_those_of_one_address_wait_for_a_place_until_one_of_them_has_logged_in() -> None:
    limits = StrangerSettings(rate=0.0, rate_each=0.0, connections_each=2)
    async with serve(limits=limits) as server, contextlib.AsyncExitStack() as stack:
        clients = [await stack.enter_async_context(connected(server)) for _ in range(20)]
        for _, writer in clients:
            writer.write(b"GET / HTTP/1.1\r\nAuthorization: good\r\n\r\n")
        for reader, _ in clients:
            assert (await answer(reader))[0] == 200


async def test_of_too_many_connections_the_oldest_stranger_makes_room_and_who_has_logged_in_stays() -> None:
    async with serve(connections=2) as server, connected(server) as good, connected(server) as idle:
        good[1].write(b"GET / HTTP/1.1\r\nAuthorization: good\r\n\r\n")
        assert (await answer(good[0]))[0] == 200
        async with connected(server) as next_one:
            next_one[1].write(b"GET / HTTP/1.1\r\n\r\n")
            assert await idle[0].read() == b""
            assert (await answer(next_one[0]))[0] == 200
        good[1].write(b"GET / HTTP/1.1\r\n\r\n")
        assert (await answer(good[0]))[0] == 200


PROXY = [ipaddress.ip_network("127.0.0.1")]


@pytest.mark.parametrize("given", [b"known", b"good"])
async def test_through_a_trusted_proxy_a_body_of_whoever_has_logged_in_may_be_long(given: bytes) -> None:
    size = door.MAX_HELD + 2**20
    async with serve(trusted=PROXY) as server, connected(server) as (reader, writer):
        for _ in range(2):
            writer.write(b"POST /read HTTP/1.1\r\nAuthorization: %b\r\nContent-Length: %d\r\n\r\n" % (given, size))
            await write_on(writer, bytes(2**20), size)
            assert (await answer(reader))[0] == 200


async def test_what_is_refused_because_too_much_is_held_is_not_done(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(door, "MAX_HELD", 10)
    monkeypatch.setattr(door, "HELD_EACH", 10)
    async with serve() as server, connected(server) as (reader, writer):
        writer.write(b"POST /read HTTP/1.1\r\nContent-Length: 20\r\n\r\n" + b"a" * 20)
        assert b" 429 " in await reader.readline()
        await reader.read()
        assert server.received.empty()


@pytest.mark.parametrize(
    "lines", [[b"192.0.2.1,192.0.2.2"], [b"192.0.2.1", b"192.0.2.2"], [b"192.0.2.2", b"127.0.0.1"]]
)
def test_a_proxy_may_say_on_a_line_of_its_own_for_whom_it_speaks(lines: list[bytes]) -> None:
    entrance = Door(StrangerSettings(), SystemClock(), connections=1, trusted=PROXY)
    visit = entrance.enter("127.0.0.1", lambda: None)
    assert isinstance(visit, door.Visit)
    entrance.begin(visit, [(b"x-forwarded-for", line) for line in lines])
    assert visit.payer == "192.0.2.2"


def test_what_a_proxy_asks_for_itself_waits_behind_no_stranger_and_is_bounded_for_itself() -> None:
    limits = StrangerSettings(rate=10.0, rate_each=10.0)
    entrance = Door(limits, ManualClock(), connections=100, trusted=[ipaddress.ip_network("10.0.0.0/30")])

    def ask(peer: str, *forwarded: bytes) -> float:
        visit = entrance.enter(peer, lambda: None)
        assert isinstance(visit, door.Visit)
        wait = entrance.begin(visit, [(b"x-forwarded-for", one) for one in forwarded])
        entrance.left(visit)
        return wait

    while ask("10.0.0.1", b"192.0.2.1") <= door.LONGEST_WAIT:
        pass
    assert ask("10.0.0.1", b"192.0.2.3") > 0, "all strangers together are at their limit"
    # Who can name a proxy in the header is a client all the same.
    assert ask("10.0.0.1", b"10.0.0.2") > 0
    assert ask("10.0.0.1") == 0
    while ask("10.0.0.1") == 0:
        pass
    assert ask("10.0.0.2") == 0


async def test_whose_handshake_does_not_come_makes_room_for_others(tmp_path: Path) -> None:
    clock, context = ManualClock(), Authority().server_context(tmp_path, "localhost")
    limits = StrangerSettings(connections=1, rate=0.0, rate_each=0.0)
    async with serve(limits=limits, clock=clock, tls=context) as server, connected(server) as (reader, _):
        await soon(lambda: len(server.door) == 1)
        clock.advance(2)
        async with connected(server):
            # Long before the handshake would be late.
            async with asyncio.timeout(5):
                with contextlib.suppress(ConnectionError):
                    assert await reader.read() == b""
            await soon(lambda: len(server.door) == 1)


async def test_what_is_urgent_is_served_before_most_of_what_came_with_it(server: Server) -> None:
    order: list[str] = []
    async with contextlib.AsyncExitStack() as stack:
        found = [await stack.enter_async_context(connected(server)) for _ in range(4 * turns.EACH)]
        server.on_path = order.append
        for number, (_, writer) in enumerate(found):
            path = b"/urgent" if number == len(found) - 1 else b"/other"
            writer.write(b"GET " + path + b" HTTP/1.1\r\nHost: x\r\nAuthorization: known\r\n\r\n")
        for reader, _ in found:
            assert (await answer(reader))[0] == 200
    assert len(order) == len(found)
    assert order.index("/urgent") < 2 * turns.EACH


KNOWN = b" HTTP/1.1\r\nHost: x\r\nAuthorization: known\r\n\r\n"


async def test_what_too_many_ask_for_is_refused_on_a_connection_that_stays_and_nothing_else_is(server: Server) -> None:
    done: list[str] = []
    server.on_path = done.append
    server.crowded = {"/full"}
    async with connected(server) as (reader, writer):
        for path, status in (("/full", 503), ("/other", 200), ("/full", 503)):
            writer.write(b"GET " + path.encode() + KNOWN)
            assert (await answer(reader))[0] == status
        server.crowded = set()
        writer.write(b"GET /full" + KNOWN)
        assert (await answer(reader))[0] == 200
    assert done == ["/other", "/full"]


async def test_with_the_body_of_what_was_refused_nothing_is_done_and_the_next_request_is_served(server: Server) -> None:
    server.crowded = {"/full"}
    head = b"POST /full HTTP/1.1\r\nHost: x\r\nAuthorization: known\r\nContent-Length: 4000\r\n\r\n"
    async with connected(server) as (reader, writer):
        writer.write(head + b"x" * 100)
        assert (await answer(reader))[0] == 503
        writer.write(b"x" * 3900 + b"GET /other" + KNOWN)
        assert (await answer(reader))[0] == 200


async def test_whose_refusal_had_to_wait_is_served_when_there_is_room_by_then(server: Server) -> None:
    server.door.refusals = turns.Refusals(rate=100)
    server.crowded = {"/full"}
    async with connected(server) as (first, writer), connected(server) as (second, other):
        writer.write(b"GET /full" + KNOWN)
        assert (await answer(first))[0] == 503
        other.write(b"GET /full" + KNOWN)
        server.crowded = set()
        assert (await answer(second))[0] == 200


async def test_whoever_leaves_before_his_refusal_is_forgotten(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(turns, "PACE", 60.0)
    server.door.refusals = turns.Refusals(rate=1 / 60)
    server.crowded = {"/full"}
    async with connected(server) as (first, writer):
        writer.write(b"GET /full" + KNOWN)
        assert (await answer(first))[0] == 503
        async with connected(server) as (_, other):
            other.write(b"GET /full" + KNOWN)
            await soon(lambda: len(server.door.refusals) == 1)
        await soon(lambda: len(server.door) == 1)
        assert server.door.refusals._waiting[0]() is turns.CANCELLED


async def test_more_than_may_wait_to_be_begun_are_refused(server: Server) -> None:
    server.door.turns = turns.Turns(each=1, waiting=2)
    async with contextlib.AsyncExitStack() as stack:
        found = [await stack.enter_async_context(connected(server)) for _ in range(40)]
        for _, writer in found:
            writer.write(b"GET /other" + KNOWN)
        statuses = [(await answer(reader))[0] for reader, _ in found]
    assert set(statuses) == {200, 503}
