"""The network's store of blobs, as one account uses it: ciphertext goes up and comes down in chunks."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
from collections.abc import AsyncIterator
from typing import Protocol

import aiohttp
import msgspec

from coreapp.errors import UpstreamAway, UpstreamRefused

CHUNK = 256 * 1024  # bytes
CONNECT_SECONDS = 10.0
SILENCE_SECONDS = 30.0  # without a byte
LONGEST_SECONDS = 900.0  # one transfer
# Answers that say «later» or «log in anew», not «never»: the token is another one once the shard is opened anew.
_LATER = (401, 403, 408, 425, 429)


@dataclasses.dataclass(frozen=True, slots=True)
class Receipt:
    """A blob that is on the network's disk. expires_at: Unix milliseconds."""

    id: str
    expires_at: int


class Blobs(Protocol):
    """Where blobs are kept for recipients, and from recipients."""

    async def upload(self, chunks: AsyncIterator[bytes], size: int) -> Receipt:
        """Store a blob of `size` bytes. Raises `UpstreamAway` and `UpstreamRefused`, and what `chunks` raises."""
        ...

    def download(self, blob: str) -> contextlib.AbstractAsyncContextManager[AsyncIterator[bytes]]:
        """The chunks of a blob. Entering it, and the chunks, raise `UpstreamAway` and `UpstreamRefused`."""
        ...


class NetworkBlobs:
    """Over the network's HTTP API. Close it when it is no longer used."""

    def __init__(self, http_url: str, number: str, token: str) -> None:
        """http_url: of the network; number, token: the account's own device."""
        self._url = f"{http_url}/v1/blobs/{number}"
        self._headers = {"Authorization": f"Bearer {token}"}
        self._session: aiohttp.ClientSession | None = None

    async def upload(self, chunks: AsyncIterator[bytes], size: int) -> Receipt:
        headers = {**self._headers, "Content-Length": str(size), "Content-Type": "application/octet-stream"}
        source = _Source(chunks)
        async with (
            _as_upstream_errors(self._url, source),
            asyncio.timeout(LONGEST_SECONDS),
            self._open().post(self._url, data=source.chunks(), headers=headers, allow_redirects=False) as answer,
        ):
            await _require_success(answer)
            text = await answer.read()
        try:
            receipt = msgspec.json.decode(text, type=_Stored)
        except ValueError as error:
            raise UpstreamAway(f"{self._url}: answered something else than the network does") from error
        return Receipt(receipt.id, receipt.expires_at * 1000)

    @contextlib.asynccontextmanager
    async def download(self, blob: str) -> AsyncIterator[AsyncIterator[bytes]]:
        url = f"{self._url}/{blob}"
        async with (
            _as_upstream_errors(self._url),
            asyncio.timeout(LONGEST_SECONDS),
            self._open().get(url, headers=self._headers, allow_redirects=False) as answer,
        ):
            await _require_success(answer)
            yield answer.content.iter_chunked(CHUNK)

    async def close(self) -> None:
        """End the kept connections."""
        if self._session is not None:
            await self._session.close()

    def _open(self) -> aiohttp.ClientSession:
        if self._session is None:
            timeout = aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_SECONDS, sock_read=SILENCE_SECONDS)
            self._session = aiohttp.ClientSession(timeout=timeout, trust_env=False, auto_decompress=False)
        return self._session


class _Stored(msgspec.Struct):
    """The network's answer. expires_at: Unix seconds."""

    id: str
    expires_at: int


class _Source:
    """Chunks to be sent, and the error that ended them: the HTTP client tells of it in words of its own."""

    def __init__(self, chunks: AsyncIterator[bytes]) -> None:
        self._chunks = chunks
        self.error: Exception | None = None

    async def chunks(self) -> AsyncIterator[bytes]:
        try:
            async for chunk in self._chunks:
                yield chunk
        except Exception as error:
            self.error = error
            raise


@contextlib.asynccontextmanager
async def _as_upstream_errors(url: str, source: _Source | None = None) -> AsyncIterator[None]:
    try:
        yield
    except (aiohttp.ClientError, ConnectionError, TimeoutError) as error:
        if source is not None and source.error is not None:
            raise source.error from error
        # Not its `repr`, which may hold the headers of the request, and with them the token.
        raise UpstreamAway(f"{url}: {type(error).__name__}: {error}") from error


async def _require_success(answer: aiohttp.ClientResponse) -> None:
    if answer.status in (200, 201):
        return
    text = (await answer.content.read(500)).decode(errors="replace")
    if answer.status >= 500 or answer.status in _LATER:
        raise UpstreamAway(f"{answer.url.origin()}: HTTP {answer.status}: {text}")
    raise UpstreamRefused(f"HTTP {answer.status}", text)
