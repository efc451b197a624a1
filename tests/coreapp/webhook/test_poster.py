"""HTTP client of callbacks against receivers of every kind, on real sockets."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest

from coreapp.webhook import poster
from coreapp.webhook.poster import Poster
from tidings.egress import addresses
from tidings.egress.guard import EgressGuard, Forbidden
from tidings.egress.names import Resolved
from tidings.egress.responses import BadResponse, ReadCpuLimit
from tidings.egress.settings import ONLY_PUBLIC, OutgoingSettings

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
Script = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


class Receiver:
    """Server that runs `script` on each connection and keeps the requests."""

    def __init__(self) -> None:
        self.requests: list[bytes] = []
        self.connections = 0
        self.script: Script = self.keep_responding
        self._tasks: set[asyncio.Task[None]] = set()

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}/hook?x=1"

    async def stop(self) -> None:
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def request(self, reader: asyncio.StreamReader) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        length = int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
        self.requests.append(head + await reader.readexactly(length))

    async def keep_responding(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            await self.request(reader)
            writer.write(OK)

    def responding(self, *parts: bytes, close: bool = False) -> Script:
        async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            while True:
                await self.request(reader)
                for part in parts:
                    writer.write(part)
                    await writer.drain()
                    await asyncio.sleep(0)
                if close:
                    return

        return script

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            await self.script(reader, writer)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()


@pytest.fixture
async def receiver() -> AsyncIterator[Receiver]:
    receiver = Receiver()
    await receiver.start()
    yield receiver
    await receiver.stop()


@pytest.fixture
async def client() -> AsyncIterator[Poster]:
    client = Poster(EgressGuard(OutgoingSettings(addresses.LOOPBACK)), timeout=5)
    yield client
    client.close()


async def test_a_post_has_the_required_headers_and_reuses_its_connection(receiver: Receiver, client: Poster) -> None:
    for n in range(3):
        assert await client.post(receiver.url, {"webhook-id": f"evt_{n}"}, b'{"n":%d}' % n) == 200
    assert receiver.connections == 1
    head, _, body = receiver.requests[2].partition(b"\r\n\r\n")
    assert body == b'{"n":2}'
    lines = head.decode().split("\r\n")
    assert lines[0] == "POST /hook?x=1 HTTP/1.1"
    assert set(lines[1:]) == {
        f"Host: 127.0.0.1:{receiver.port}",
        "Content-Type: application/json",
        "User-Agent: tidings",
        "webhook-id: evt_2",
        "Content-Length: 7",
    }


async def test_concurrent_posts_use_separate_connections(receiver: Receiver, client: Poster) -> None:
    assert await asyncio.gather(*(client.post(receiver.url, {}, b"{}") for _ in range(10))) == [200] * 10
    assert receiver.connections == 10
    assert await asyncio.gather(*(client.post(receiver.url, {}, b"{}") for _ in range(10))) == [200] * 10
    assert receiver.connections == 10


@pytest.mark.parametrize(
    ("parts", "status", "kept"),
    [
        ((b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", b"2\r\nok\r\n", b"0\r\n\r\n"), 200, True),
        ((b"HTTP/1.1 204 No Content\r\n\r\n",), 204, True),
        ((b"HTTP/1.1 2", b"00 OK\r\nContent-Le", b"ngth: 0\r\n\r\n"), 200, True),
        ((b"HTTP/1.1 100 Continue\r\n\r\n", OK), 200, True),
        ((b"HTTP/1.1 302 Found\r\nLocation: /x\r\nContent-Length: 0\r\n\r\n",), 302, True),
        ((b"HTTP/1.1 500 Oh\r\nConnection: close\r\nContent-Length: 0\r\n\r\n",), 500, False),
        ((b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n", b"x" * 200_000), 200, False),
        ((OK + b"HTTP/1.1 500 unasked\r\n\r\n",), 200, False),
        ((b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n",), 101, False),
        ((b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n\r\n" + OK,), 101, False),
        ((b"HTTP/1.1 101 Switching", b" Protocols\r\n\r\n", b"\x81\x05hello"), 101, False),
        ((b"HTTP/1.1 426 No\r\nConnection: Upgrade\r\nUpgrade: h2c\r\nContent-Length: 0\r\n\r\n",), 426, True),
    ],
)
async def test_every_valid_response_form_is_accepted(
    receiver: Receiver, client: Poster, parts: tuple[bytes, ...], status: int, kept: bool
) -> None:
    receiver.script = receiver.responding(*parts)
    for _ in range(2):
        assert await client.post(receiver.url, {}, b"{}") == status
    if kept:
        assert receiver.connections == 1
    if status == 101:
        assert receiver.connections == 2


async def test_a_response_may_end_with_its_connection(receiver: Receiver, client: Poster) -> None:
    receiver.script = receiver.responding(b"HTTP/1.0 200 OK\r\n\r\nall of it", close=True)
    for _ in range(2):
        assert await client.post(receiver.url, {}, b"{}") == 200
    assert receiver.connections == 2


class MeasuredReads(ReadCpuLimit):
    """Limit that records the CPU seconds that were consumed."""

    def __init__(self) -> None:
        super().__init__()
        self.consumed: list[float] = []

    def consume(self, seconds: float) -> float:
        self.consumed.append(seconds)
        return super().consume(seconds)


async def test_responses_that_are_cut_off_use_a_tenth_of_a_core(receiver: Receiver) -> None:
    pace = MeasuredReads()
    client = Poster(EgressGuard(OutgoingSettings(addresses.LOOPBACK)), timeout=60, pace=pace)
    chunks = b"1\r\nx\r\n" * 30_000
    receiver.script = receiver.responding(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + chunks, close=True)
    started = time.monotonic()
    assert [await client.post(receiver.url, {}, b"{}") for _ in range(100)] == [200] * 100
    assert len(pace.consumed) >= 100
    # Half a second of the CPU share was saved up, and the last post's wait is over.
    assert sum(pace.consumed) <= 0.1 * (time.monotonic() - started + 0.5)
    receiver.script = receiver.responding(b"HTTP/1.1 200 OK\r\nContent-Length: 60000\r\n\r\n" + bytes(60_000))
    count = len(pace.consumed)
    assert await client.post(receiver.url, {}, b"{}") == 200
    assert len(pace.consumed) == count
    client.close()


class SlowReads(ReadCpuLimit):
    """Limit that delays each post for a minute after a response that is cut off."""

    def __init__(self) -> None:
        super().__init__()
        self.looked_up = asyncio.Event()

    def consume(self, seconds: float) -> float:
        self.looked_up.set()
        return 60.0


async def test_a_known_status_is_no_timeout_however_long_the_rest_of_its_response_delays(receiver: Receiver) -> None:
    pace = SlowReads()
    client = Poster(EgressGuard(OutgoingSettings(addresses.LOOPBACK)), timeout=0.2, pace=pace)
    chunks = b"1\r\nx\r\n" * 30_000
    receiver.script = receiver.responding(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + chunks, close=True)
    post = asyncio.create_task(client.post(receiver.url, {}, b"{}"))
    async with asyncio.timeout(30):
        await pace.looked_up.wait()
    done, _ = await asyncio.wait([post], timeout=1.0)
    assert not done, "the time limit of the post applies to the wait for its response"
    post.cancel()
    client.close()


async def test_an_idle_connection_closed_by_the_receiver_is_replaced(receiver: Receiver, client: Poster) -> None:
    receiver.script = receiver.responding(OK, close=True)
    for _ in range(5):
        assert await client.post(receiver.url, {}, b"{}") == 200
    assert len(receiver.requests) == 5


async def test_an_invalid_response_raises_an_error(receiver: Receiver, client: Poster) -> None:
    receiver.script = receiver.responding(b"SSH-2.0-OpenSSH_9\r\n")
    with pytest.raises(BadResponse):
        await client.post(receiver.url, {}, b"{}")
    receiver.script = receiver.responding(b"HTTP/1.1 200 O", close=True)
    with pytest.raises(OSError):
        await client.post(receiver.url, {}, b"{}")
    receiver.script = receiver.responding(close=True)
    with pytest.raises(OSError):
        await client.post(receiver.url, {}, b"{}")


async def test_a_response_timeout_closes_the_connection(
    receiver: Receiver,
) -> None:
    client = Poster(EgressGuard(OutgoingSettings(addresses.LOOPBACK)), timeout=0.05)
    receiver.script = receiver.responding()
    for _ in range(2):
        with pytest.raises(TimeoutError):
            await client.post(receiver.url, {}, b"{}")
    assert receiver.connections == 2
    client.close()


async def test_only_new_connections_resolve_and_check_the_host(receiver: Receiver) -> None:
    looked_up: list[str] = []

    async def lookup(host: str, port: int) -> list[Resolved]:
        looked_up.append(host)
        return [(socket.AF_INET, "127.0.0.1" if len(looked_up) == 1 else "10.0.0.1")]

    client = Poster(EgressGuard(OutgoingSettings(addresses.LOOPBACK), lookup), timeout=5)
    url = f"http://webhook.example:{receiver.port}/hook"
    for _ in range(3):
        assert await client.post(url, {}, b"{}") == 200
    assert len(looked_up) == receiver.connections == 1
    client.close()
    with pytest.raises(Forbidden, match=r"webhook.example \(10.0.0.1\) is a private address"):
        await client.post(url, {}, b"{}")
    assert len(looked_up) == 2


async def test_a_forbidden_webhook_address_gets_no_connection(receiver: Receiver) -> None:
    client = Poster(EgressGuard(ONLY_PUBLIC), timeout=5)
    for host in ("127.0.0.1", "localhost", "2130706433", "0x7f.1", "[::ffff:127.0.0.1]"):
        with pytest.raises(Forbidden):
            await client.post(f"http://{host}:{receiver.port}/hook", {}, b"{}")
    assert not receiver.connections


async def test_a_refused_connection_raises_oserror(client: Poster) -> None:
    with pytest.raises(OSError):
        await client.post("http://127.0.0.1:1/", {}, b"{}")


@pytest.mark.parametrize(
    "url",
    [
        "",
        "nonsense",
        "ftp://host/",
        "http://",
        "http:///path",
        "http://host:99999/",
        "http://[::1/",
        "http://" + "a" * 70,
    ],
)
async def test_an_invalid_url_raises_an_error(client: Poster, url: str) -> None:
    with pytest.raises((ValueError, OSError)):
        await client.post(url, {}, b"{}")


@pytest.mark.parametrize(
    ("url", "origin", "request_line"),
    [
        ("http://example.com", ("example.com", 80, False), b"POST / HTTP/1.1\r\nHost: example.com\r\n"),
        (
            "https://example.com:8443/a b",
            ("example.com", 8443, True),
            b"POST /a%20b HTTP/1.1\r\nHost: example.com:8443\r\n",
        ),
        (
            "https://u:p%40@example.com/?a=b",
            ("example.com", 443, True),
            b"POST /?a=b HTTP/1.1\r\nHost: example.com\r\n",
        ),
        ("http://[::1]:8080/x#f", ("::1", 8080, False), b"POST /x HTTP/1.1\r\nHost: [::1]:8080\r\n"),
        (
            "http://bücher.example/",
            ("xn--bcher-kva.example", 80, False),
            b"POST / HTTP/1.1\r\nHost: xn--bcher-kva.example\r\n",
        ),
        ("http://h/\r\nX: y", ("h", 80, False), b"POST /X:%20y HTTP/1.1\r\nHost: h\r\n"),
    ],
)
def test_a_url_is_parsed_into_origin_and_request_head(
    url: str, origin: tuple[str, int, bool], request_line: bytes
) -> None:
    address = poster.address_of(url)
    assert address.origin == origin
    assert address.head.startswith(request_line)
    assert (b"Authorization: Basic dTpwQA==\r\n" in address.head) == ("u:p" in url)


async def test_a_connection_from_before_a_change_of_authorities_is_not_reused(
    receiver: Receiver, client: Poster
) -> None:
    received, released = asyncio.Event(), asyncio.Event()

    async def hold_the_first(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            await receiver.request(reader)
            received.set()
            await released.wait()
            writer.write(OK)

    receiver.script = hold_the_first
    first = asyncio.create_task(client.post(receiver.url, {}, b"1"))
    await received.wait()
    client.trust(b"other authorities")
    released.set()
    assert await first == 200
    assert await client.post(receiver.url, {}, b"2") == 200
    assert receiver.connections == 2
