"""Downloads of files from servers of every kind, on real sockets."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest

from tests.authority import Authority
from tidings.egress import addresses, trust, urls
from tidings.egress.download import Downloader, DownloadTooLarge
from tidings.egress.guard import EgressGuard, Forbidden
from tidings.egress.responses import BadResponse
from tidings.egress.settings import ONLY_PUBLIC, OutgoingSettings

Script = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


class Server:
    """Server that sends `response` to every request and keeps the requests."""

    def __init__(self) -> None:
        self.requests: list[bytes] = []
        self.response = b"HTTP/1.1 200 OK\r\nContent-Type: image/png\r\nContent-Length: 4\r\n\r\nfile"
        self.hold = False
        self.url = ""

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            self.requests.append(await reader.readuntil(b"\r\n\r\n"))
            writer.write(self.response)
            if self.hold:
                await reader.read()
            await writer.drain()
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    found = Server()
    listening = await asyncio.start_server(found.serve, "127.0.0.1", 0)
    found.url = f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}/a.png?x=1"
    yield found
    listening.close()


@pytest.fixture
def downloader() -> Downloader:
    return Downloader(EgressGuard(OutgoingSettings(addresses.LOOPBACK)))


async def fetched(downloader: Downloader, url: str, *, limit: int = 1000, seconds: float = 5) -> tuple[int, bytes]:
    async with downloader.fetch(url, limit=limit, seconds=seconds) as response:
        return response.status, b"".join([piece async for piece in response.chunks()])


async def test_a_download_has_status_length_headers_and_content(server: Server, downloader: Downloader) -> None:
    async with downloader.fetch(server.url, {"Authorization": "Bearer t"}, limit=4, seconds=5) as response:
        assert (response.status, response.length, response.headers["content-type"]) == (200, 4, "image/png")
        assert [piece async for piece in response.chunks()] == [b"file"]
    lines = server.requests[0].decode().split("\r\n")
    assert lines[0] == "GET /a.png?x=1 HTTP/1.1"
    assert "Authorization: Bearer t" in lines
    assert f"Host: {urls.parse(server.url).named}" in lines


@pytest.mark.parametrize(
    ("response", "status", "body"),
    [
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nfi\r\n2\r\nle\r\n0\r\n\r\n", 200, b"file"),
        (b"HTTP/1.0 200 OK\r\n\r\nto the end", 200, b"to the end"),
        (b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nfile", 200, b"file"),
        (b"HTTP/1.1 404 Not Found\r\nContent-Length: 2\r\n\r\nno", 404, b"no"),
        (b"HTTP/1.1 204 No Content\r\n\r\n", 204, b""),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nfileHTTP/1.1 200 OK\r\n", 200, b"file"),
        (b"HTTP/1.1 101 Switching\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n\x81\x05hello", 101, b""),
        (b"HTTP/1.1 101 Switching\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nfile", 101, b""),
    ],
)
async def test_downloads_accept_every_valid_response_form(
    server: Server, downloader: Downloader, response: bytes, status: int, body: bytes
) -> None:
    server.response = response
    assert await fetched(downloader, server.url) == (status, body)


@pytest.mark.parametrize(
    "response",
    [
        b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nfile",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n9\r\nfile",
        b"HTTP/1.1 200 OK\r\n",
        b"",
        b"SSH-2.0-OpenSSH_9\r\n",
        b"HTTP/1.1 200 OK\r\nX: " + b"x" * 200_000 + b"\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nX: " + b"x" * 400_000,
        b"HTTP/1.1 200 OK\r\nContent-Length: " + b"9" * 5000 + b"\r\n\r\n",
    ],
)
async def test_a_truncated_or_malformed_response_fails_the_download(
    server: Server, downloader: Downloader, response: bytes
) -> None:
    server.response = response
    with pytest.raises(BadResponse):
        await fetched(downloader, server.url)


@pytest.mark.parametrize(
    "response",
    [
        b"HTTP/1.1 200 OK\r\nContent-Length: 1001\r\n\r\n" + b"x" * 1001,
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3e9\r\n" + b"x" * 1001 + b"\r\n0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\n\r\n" + b"x" * 1_000_000,
    ],
)
async def test_a_download_returns_at_most_limit_bytes(server: Server, downloader: Downloader, response: bytes) -> None:
    server.response = response
    got = 0
    with pytest.raises(DownloadTooLarge):
        async with downloader.fetch(server.url, limit=1000, seconds=5) as download:
            async for piece in download.chunks():
                got += len(piece)
    assert got <= 1000


async def test_the_deadline_covers_the_whole_download(server: Server, downloader: Downloader) -> None:
    server.response, server.hold = b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nfile", True
    with pytest.raises(TimeoutError):
        await fetched(downloader, server.url, seconds=0.1)


async def test_a_redirect_is_not_followed_and_its_host_gets_no_credentials(
    server: Server, downloader: Downloader
) -> None:
    other = Server()
    listening = await asyncio.start_server(other.serve, "127.0.0.1", 0)
    where = f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}/"
    server.response = b"HTTP/1.1 302 Found\r\nLocation: %s\r\nContent-Length: 0\r\n\r\n" % where.encode()
    async with downloader.fetch(server.url, {"Authorization": "Bearer t"}, limit=10, seconds=5) as response:
        assert response.status == 302
    assert not other.requests
    listening.close()


async def test_a_forbidden_host_receives_no_request(server: Server) -> None:
    with pytest.raises(Forbidden):
        await fetched(Downloader(EgressGuard(ONLY_PUBLIC)), server.url)
    assert not server.requests


async def test_user_info_in_a_url_is_sent_as_basic_authorization(server: Server, downloader: Downloader) -> None:
    await fetched(downloader, server.url.replace("http://", "http://u:p%40@"))
    assert b"\r\nAuthorization: Basic dTpwQA==\r\n" in server.requests[0]


async def test_a_header_with_a_line_break_is_rejected(server: Server, downloader: Downloader) -> None:
    with pytest.raises(ValueError):
        async with downloader.fetch(server.url, {"Authorization": "Bearer t\r\nX: y"}, limit=10, seconds=5):
            pass
    assert not server.requests


async def test_tls_downloads_verify_the_host_name(server: Server, tmp_path: Path) -> None:
    authority = Authority(old=True)
    listening = await asyncio.start_server(
        server.serve, "127.0.0.1", 0, ssl=authority.server_context(tmp_path, "127.0.0.1")
    )
    url = f"https://127.0.0.1:{listening.sockets[0].getsockname()[1]}/"
    guard = EgressGuard(OutgoingSettings(addresses.LOOPBACK))
    with pytest.raises(OSError, match="CERTIFICATE_VERIFY_FAILED"):
        await fetched(Downloader(guard), url)
    context = trust.context(authority.pem)
    assert await fetched(Downloader(guard, context), url) == (200, b"file")
    with pytest.raises(OSError, match="CERTIFICATE_VERIFY_FAILED"):
        await fetched(Downloader(guard, context), url.replace("127.0.0.1", "localhost"))
    listening.close()


async def test_a_length_with_thousands_of_leading_zeros_is_a_length(server: Server, downloader: Downloader) -> None:
    # Python converts no text of more than 4300 digits; the `ValueError` would mean an invalid URL.
    server.response = b"HTTP/1.1 200 OK\r\nContent-Length: " + b"0" * 5000 + b"4\r\n\r\nfile"
    assert await fetched(downloader, server.url) == (200, b"file")
