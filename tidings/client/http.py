"""Client of the network's HTTP API, as devices use it, with kept-alive connections. One instance per process."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import ssl
from collections.abc import AsyncIterator, Mapping, Sequence
from types import TracebackType
from typing import Any, Protocol, Self, TypeVar
from urllib.parse import quote

import aiohttp
import msgspec
import yarl

from tidings.client import errors
from tidings.client.errors import ClientError, NetworkTimeout, NetworkUnavailable, NetworkUnreached
from tidings.wire import registration
from tidings.wire.decoding import UNREADABLE
from tidings.wire.registration import DeviceRegistration, KeysLeft, KeyUpload

MAX_BULK = registration.MAX_BULK
CALLS = 16  # calls in flight; further ones wait for a connection
TRANSFERS = 16  # blobs in flight, in addition to the calls: the default
CALL_SECONDS = 40.0  # seconds for one call; the network gives up after 30
TRANSFER_SECONDS = 900.0  # seconds for one blob, as long as the network allows
CONNECT_SECONDS = 5.0
SILENCE_SECONDS = 30.0  # seconds of a transfer without a byte
# Seconds for which idle connections are kept: less than at the network, which could otherwise close one during a call.
KEPT_SECONDS = 4.0

Shape = TypeVar("Shape")


class DeviceCredentials(Protocol):
    """Number and token of a registered device, as calls need them."""

    @property
    def number(self) -> str: ...

    @property
    def token(self) -> str | None: ...


@dataclasses.dataclass(frozen=True, slots=True)
class NetworkResponse:
    """Complete HTTP response."""

    status: int
    headers: Mapping[str, str]  # names are case-insensitive
    content: bytes

    @property
    def is_success(self) -> bool:
        return 200 <= self.status < 300


@dataclasses.dataclass(frozen=True, slots=True)
class StoredBlob:
    """Blob that is on the network's disk."""

    id: str
    expires_at: int  # Unix milliseconds


class _StoredResponse(msgspec.Struct):
    id: str
    expires_at: int  # Unix seconds


class _Error(msgspec.Struct):
    reason: str = ""
    detail: str = ""


class _Failure(msgspec.Struct):
    error: _Error


class NetworkApi:
    """Calls for any number of devices. Make one instance per process, and close it or use it as a context manager.

    Every call raises `NetworkUnavailable` and, except `health`, `NetworkRefusal`: see `tidings.client.errors`.
    """

    def __init__(self, url: str, *, tls: ssl.SSLContext | None = None, transfers: int = TRANSFERS) -> None:
        """Make a client, which connects at its first call. It does not use the proxies of the environment.

        url:       URL of the network, such as `http://127.0.0.1:9095`
        tls:       context that verifies the network's certificate; None for the system's authorities
        transfers: blobs that may be in flight; calls always have a connection in addition to these
        """
        self.url = url.rstrip("/")
        self.tls = tls
        if tls is None and self.url.startswith("https:"):
            tls = ssl.create_default_context()
        self._checked_by = tls
        self._connections = CALLS + transfers
        self._session: aiohttp.ClientSession | None = None

    async def close(self) -> None:
        """Close the kept connections."""
        session, self._session = self._session, None
        if session is not None:
            await session.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def health(self, *, seconds: float) -> dict[str, Any]:
        """Return the network's health report, also when it is unhealthy. Raises `NetworkTimeout` after `seconds`."""
        content = (await self._exchange("GET", "/health", {}, b"", seconds=seconds)).content
        return decode(content, dict[str, Any])

    async def request_code(self, number: str, *, registration_key: str = "") -> None:
        """Make the network issue a registration code for a number.

        Raises `TooSoon` while the previous one is still valid.

        registration_key: required for the business's numbers
        """
        await self.call("POST", "/v1/codes", registration.CodeRequest(number), bearer=registration_key)

    async def register(self, device: DeviceRegistration, *, registration_key: str = "") -> str:
        """Register a device with the code in the body or with the registration key; return its token.

        Raises `WrongCode`, and when the code is right `LockedNumber` and `WrongPin`.
        """
        response = await self.call("POST", "/v1/registrations", device, bearer=registration_key)
        return decode(response.content, registration.Registered).token

    async def register_many(self, devices: Sequence[DeviceRegistration], registration_key: str) -> dict[str, str]:
        """Register at most `MAX_BULK` devices; return the tokens by number."""
        body = registration.BulkRegistration(list(devices))
        response = await self.call("POST", "/v1/registrations/bulk", body, bearer=registration_key)
        made = decode(response.content, registration.BulkRegistered).registrations
        return {registered.number: registered.token for registered in made}

    async def unregister(self, device: DeviceCredentials) -> None:
        """Remove the device's number from the directory."""
        await self.call("DELETE", f"/v1/registrations/{device.number}", bearer=device.token)

    async def upload_keys(self, device: DeviceCredentials, keys: KeyUpload) -> KeysLeft:
        """Add one-time pre-keys and replace lasting ones; return the counts that the network has now."""
        response = await self.call("PUT", f"/v1/keys/{device.number}", keys, bearer=device.token)
        return decode(response.content, KeysLeft)

    async def count_keys(self, device: DeviceCredentials) -> KeysLeft:
        """Return how many one-time pre-keys the network has left."""
        response = await self.call("GET", f"/v1/keys/{device.number}", bearer=device.token)
        return decode(response.content, KeysLeft)

    async def block(self, device: DeviceCredentials, other: str) -> None:
        """Make the network drop whatever `other` sends to this device."""
        await self.call("PUT", f"/v1/blocks/{device.number}/{other}", bearer=device.token)

    async def unblock(self, device: DeviceCredentials, other: str) -> None:
        """Undo `block`."""
        await self.call("DELETE", f"/v1/blocks/{device.number}/{other}", bearer=device.token)

    async def upload_blob(self, device: DeviceCredentials, chunks: AsyncIterator[bytes], size: int) -> StoredBlob:
        """Upload a blob of `size` bytes. Raises `NetworkFull`, and whatever `chunks` raises."""
        path = f"/v1/blobs/{device.number}"
        headers = {"Content-Length": str(size), "Content-Type": "application/octet-stream"}
        async with self._transfer("POST", path, device, headers=headers, body=chunks) as response:
            content = await response.read()
        stored = decode(content, _StoredResponse)
        return StoredBlob(stored.id, stored.expires_at * 1000)

    @contextlib.asynccontextmanager
    async def download_blob(self, device: DeviceCredentials, blob: str) -> AsyncIterator[AsyncIterator[bytes]]:
        """Open a blob; its chunks are to be read inside the block. Raises `FileLost` when the network does not have it.

        Errors of reading the chunks are raised at the end of the block.
        """
        try:
            async with self._transfer("GET", f"/v1/blobs/{device.number}/{segment(blob)}", device) as response:
                yield response.content.iter_any()
        except errors.NetworkRefusal as refusal:
            if refusal.status != 404:
                raise
            raise errors.FileLost("the network does not have the file, or it has expired") from refusal

    async def call(
        self,
        method: str,
        path: str,
        body: object = None,
        *,
        bearer: str | None = "",
        content: bytes | None = None,
        seconds: float = CALL_SECONDS,
    ) -> NetworkResponse:
        """Make one call, with a JSON body or with `content` as it is; return the complete response.

        Raises for a failure.
        """
        headers = {"Authorization": f"Bearer {bearer}"} if bearer else {}
        if body is not None:
            headers["Content-Type"] = "application/json"
            content = msgspec.json.encode(body)
        response = await self._exchange(method, path, headers, content or b"", seconds=seconds)
        if not response.is_success:
            raise _failure(response.status, response.content)
        return response

    async def _exchange(
        self, method: str, path: str, headers: Mapping[str, str], content: bytes, *, seconds: float
    ) -> NetworkResponse:
        timeout = aiohttp.ClientTimeout(sock_connect=CONNECT_SECONDS)
        async with self._in_time(seconds), self._request(method, path, headers, content or None, timeout) as response:
            return NetworkResponse(response.status, response.headers, await response.read())

    @contextlib.asynccontextmanager
    async def _transfer(
        self,
        method: str,
        path: str,
        device: DeviceCredentials,
        *,
        headers: Mapping[str, str] | None = None,
        body: AsyncIterator[bytes] | None = None,
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        """Open a transfer; yield the successful response once its head has arrived."""
        sent = {"Authorization": f"Bearer {device.token}", **(headers or {})}
        timeout = aiohttp.ClientTimeout(sock_connect=CONNECT_SECONDS, sock_read=SILENCE_SECONDS)
        async with self._in_time(TRANSFER_SECONDS), asyncio.timeout(None) as silence:
            source = None if body is None else _Source(body, silence)
            try:
                chunks = None if source is None else source.chunks()
                async with self._request(method, path, sent, chunks, timeout) as response:
                    if not 200 <= response.status < 300:
                        raise _failure(response.status, await response.read())
                    yield response
            except aiohttp.ClientError:
                if source is not None and source.failure is not None:
                    raise source.failure from None
                raise

    def _request(
        self,
        method: str,
        path: str,
        headers: Mapping[str, str],
        content: bytes | AsyncIterator[bytes] | None,
        timeout: aiohttp.ClientTimeout,
    ) -> contextlib.AbstractAsyncContextManager[aiohttp.ClientResponse]:
        if self._session is None:
            # Created here because it needs a running event loop.
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(
                    limit=self._connections, ssl=self._checked_by or True, keepalive_timeout=KEPT_SECONDS
                ),
                headers={"User-Agent": "tidings", "Accept-Encoding": "identity"},
                cookie_jar=aiohttp.DummyCookieJar(),
                auto_decompress=False,
                trust_env=False,
                middlewares=(_send_once,),
            )
        # The path is quoted already.
        url = yarl.URL(self.url + path, encoded=True)
        return self._session.request(method, url, headers=headers, data=content, timeout=timeout, allow_redirects=False)

    @contextlib.asynccontextmanager
    async def _in_time(self, seconds: float) -> AsyncIterator[None]:
        """Limit the block to `seconds`, and convert errors of aiohttp into ours.

        The cause is dropped, because its `repr` may contain the token.
        """
        where = f"no answer from the network at {self.url}"
        try:
            async with asyncio.timeout(seconds):
                yield
        except (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError) as error:
            raise NetworkUnreached(f"{where} ({error})") from None
        except TimeoutError:
            raise NetworkTimeout(f"{where} in time") from None
        except aiohttp.ClientError as error:
            raise NetworkUnavailable(f"{where} ({str(error) or type(error).__name__})") from None


async def _send_once(request: aiohttp.ClientRequest, handler: aiohttp.ClientHandlerType) -> aiohttp.ClientResponse:
    """Make one attempt. aiohttp would repeat a failed GET, PUT or DELETE, although the first may have been carried out.

    Raises `aiohttp.ClientConnectionError`.
    """
    try:
        return await handler(request)
    except aiohttp.ClientConnectorError:
        raise
    except (aiohttp.ClientOSError, aiohttp.ServerDisconnectedError) as error:
        raise aiohttp.ClientConnectionError(str(error) or type(error).__name__) from error


class _Source:
    """Body of an upload.

    aiohttp measures the server's silence only after the request has been sent; during it, `silence` does.
    """

    def __init__(self, body: AsyncIterator[bytes], silence: asyncio.Timeout) -> None:
        self._body = body
        self._silence = silence
        self.failure: Exception | None = None  # error of the source, which aiohttp would report as its own

    async def chunks(self) -> AsyncIterator[bytes]:
        """Yield the chunks of the source. The timeout is suspended while the source produces the next one."""
        loop = asyncio.get_running_loop()
        try:
            async for chunk in self._body:
                self._silence.reschedule(loop.time() + SILENCE_SECONDS)
                yield chunk
                self._silence.reschedule(None)
        except Exception as error:
            self.failure = error
            raise


def segment(text: str) -> str:
    """Return `text` quoted as one segment of a path."""
    return quote(text, safe="")


def decode(content: bytes, shape: type[Shape]) -> Shape:
    """Decode a response of the network. Raises `NetworkUnavailable` for an invalid one."""
    try:
        return msgspec.json.decode(content, type=shape)
    except UNREADABLE as error:
        raise NetworkUnavailable(f"the server does not respond like a message network: {error}") from error


def _failure(status: int, content: bytes) -> ClientError:
    try:
        failure = msgspec.json.decode(content, type=_Failure).error
    except UNREADABLE:
        failure = _Error(
            detail=f"the server does not respond like a message network: HTTP {status}" if status < 500 else ""
        )
    return errors.from_response(status, failure.reason, failure.detail)
