"""The network's HTTP API as a device uses it: codes, registrations, keys, blocks, blobs; groups by `call`."""

from __future__ import annotations

import base64
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from types import TracebackType
from typing import Any, Self

import aiohttp
import msgspec

from handset import errors
from handset.devices.device import Device
from handset.devices.keys import KeySet
from tidings import e2ee
from tidings.wire.decoding import UNREADABLE

log = logging.getLogger(__name__)

MAX_BULK = 500
_TIMEOUT = aiohttp.ClientTimeout(total=60, sock_connect=5)
# Blobs: as long as the network itself allows.
_TRANSFER = aiohttp.ClientTimeout(total=900, sock_connect=5, sock_read=30)
_CHUNK = 256 * 1024


class NetworkApi:
    """A client over kept-alive connections; use it as a context manager.

    Every call raises `NetworkAway` when the network cannot be reached or is too busy, `Unauthorized` when it does not
    know the token or key, and `Rejected` when it finds fault with the request.
    """

    def __init__(self, url: str) -> None:
        self._url = url.rstrip("/")
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Self:
        connector = aiohttp.TCPConnector(limit=16)
        self._session = aiohttp.ClientSession(connector=connector, timeout=_TIMEOUT, trust_env=False)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._session is not None:
            await self._session.close()

    async def request_code(self, number: str) -> None:
        """Make the network print a code for this number. Raises `TooSoon`, while the one before can still be used."""
        await self._call("POST", "/v1/codes", {"number": number})

    async def register(self, device: Device, keys: KeySet, *, code: str = "", registration_key: str = "") -> str:
        """Register with a code or with the registration key; returns the device's token. Raises `WrongCode`."""
        body = _registration(device, keys)
        if code:
            body["code"] = code
        answer = await self._call("POST", "/v1/registrations", body, registration_key)
        return str(answer["token"])

    async def register_many(self, devices: Sequence[tuple[Device, KeySet]], registration_key: str) -> dict[str, str]:
        """Register at most `MAX_BULK` devices; returns the tokens by number."""
        body = {"registrations": [_registration(device, keys) for device, keys in devices]}
        answer = await self._call("POST", "/v1/registrations/bulk", body, registration_key)
        return {str(entry["number"]): str(entry["token"]) for entry in answer["registrations"]}

    async def put_keys(self, device: Device, keys: KeySet) -> dict[str, Any]:
        """Upload more one-time pre-keys, or newer lasting ones; the answer says what the network has now."""
        body: dict[str, Any] = {}
        if keys.signed is not None:
            body["signed_prekey"] = _signed(keys.signed)
        if keys.kyber_last is not None:
            body["kyber_prekey"] = _signed(keys.kyber_last)
        if keys.one_time:
            body["prekeys"] = [_key(key) for key in keys.one_time]
        if keys.kyber_one_time:
            body["kyber_prekeys"] = [_signed(key) for key in keys.kyber_one_time]
        answer: dict[str, Any] = await self._call("PUT", f"/v1/keys/{device.number}", body, device.token or "")
        return answer

    async def block(self, device: Device, other: str) -> None:
        """Nothing of `other` reaches this device any more."""
        await self._call("PUT", f"/v1/blocks/{device.number}/{other}", None, device.token or "")

    async def unblock(self, device: Device, other: str) -> None:
        """Undo `block`."""
        await self._call("DELETE", f"/v1/blocks/{device.number}/{other}", None, device.token or "")

    async def upload_blob(self, device: Device, chunks: AsyncIterator[bytes], size: int) -> str:
        """Leave a file of `size` bytes on the network; returns its id.

        Raises `NetworkFull`, and the errors of ours that `chunks` raises.
        """
        assert self._session is not None, "use the client as a context manager"
        headers = {"Authorization": f"Bearer {device.token}", "Content-Length": str(size)}
        url = f"{self._url}/v1/blobs/{device.number}"
        body = _Body(chunks)
        try:
            async with self._session.post(url, data=body.chunks(), headers=headers, timeout=_TRANSFER) as answer:
                status, content = answer.status, await answer.read()
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            if body.failure is not None:
                raise body.failure from error
            raise self._away(error) from error
        if status != 201:
            raise self._refusal("POST", url, status, content)
        return str(msgspec.json.decode(content)["id"])

    async def download_blob(self, device: Device, blob: str) -> AsyncGenerator[bytes]:
        """The chunks of a file. Raises `FileLost` when the network does not have it."""
        assert self._session is not None, "use the client as a context manager"
        url = f"{self._url}/v1/blobs/{device.number}/{blob}"
        headers = {"Authorization": f"Bearer {device.token}"}
        try:
            async with self._session.get(url, headers=headers, timeout=_TRANSFER) as answer:
                if answer.status != 200:
                    raise self._refusal("GET", url, answer.status, await answer.content.read(4096))
                async for chunk in answer.content.iter_chunked(_CHUNK):
                    yield chunk
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise self._away(error) from error

    async def call(self, method: str, path: str, device: Device, body: object = None) -> Any:
        """One call of a device; the JSON of the answer. Raises `NoSuchGroup` and `NotAdmin` for calls about groups."""
        return await self._call(method, path, body, device.token or "")

    async def _call(self, method: str, path: str, body: object, bearer: str = "") -> Any:
        assert self._session is not None, "use the client as a context manager"
        headers = {"Content-Type": "application/json"}
        if bearer:
            headers["Authorization"] = f"Bearer {bearer}"
        data = msgspec.json.encode(body) if body is not None else None
        try:
            async with self._session.request(method, self._url + path, data=data, headers=headers) as answer:
                content = await answer.read()
                status = answer.status
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise self._away(error) from error
        if status < 300:
            return msgspec.json.decode(content) if content else None
        raise self._refusal(method, path, status, content)

    def _away(self, error: Exception) -> errors.NetworkAway:
        return errors.NetworkAway(f"no answer from the network at {self._url} ({_brief(error)})")

    def _refusal(self, method: str, path: str, status: int, content: bytes) -> errors.HandsetError:
        reason, detail = _error(content)
        detail = detail or f"HTTP {status}"
        if reason == "wrong_code":
            return errors.WrongCode(detail)
        if status == 429 and path == "/v1/codes":
            return errors.TooSoon(detail)
        if reason in ("no_such_group", "no_such_invite", "not_participant"):
            return errors.NoSuchGroup(detail)
        if reason == "not_admin":
            return errors.NotAdmin(detail)
        if status in (401, 403):
            return errors.Unauthorized(detail)
        if status == 404 and "/v1/blobs/" in path:
            return errors.FileLost("the network does not have the file (any more)")
        if reason == "full":
            return errors.NetworkFull(detail)
        if status >= 500 or status in (408, 429):
            return errors.NetworkAway(f"the network at {self._url} is busy: {detail}")
        return errors.Rejected(f"{method} {path}: {detail}")


class _Body:
    """Chunks to be sent, and the error of ours that ended them: the HTTP client tells of it in words of its own."""

    def __init__(self, chunks: AsyncIterator[bytes]) -> None:
        self._chunks = chunks
        self.failure: errors.HandsetError | None = None

    async def chunks(self) -> AsyncIterator[bytes]:
        try:
            async for chunk in self._chunks:
                yield chunk
        except errors.HandsetError as error:
            self.failure = error
            raise


def _brief(error: BaseException) -> str:
    return str(error) or type(error).__name__


def _error(content: bytes) -> tuple[str, str]:
    """Reason and detail of `{"error": {"reason", "detail"}}`."""
    try:
        error = msgspec.json.decode(content)["error"]
        return str(error["reason"]), str(error["detail"])
    except (*UNREADABLE, LookupError, TypeError):
        return "", ""


def _text(data: bytes) -> str:
    return base64.b64encode(data).decode()


def _key(key: e2ee.PreKey) -> dict[str, object]:
    return {"key_id": key.key_id, "public": _text(key.public)}


def _signed(key: e2ee.SignedPreKey | e2ee.KyberPreKey) -> dict[str, object]:
    return {"key_id": key.key_id, "public": _text(key.public), "signature": _text(key.signature)}


def _registration(device: Device, keys: KeySet) -> dict[str, Any]:
    assert keys.signed is not None
    body: dict[str, Any] = {
        "number": device.number,
        "registration_id": device.registration_id,
        "identity_key": _text(device.identity.public),
        "signed_prekey": _signed(keys.signed),
        "prekeys": [_key(key) for key in keys.one_time],
    }
    if keys.kyber_last is not None:
        body["kyber_prekey"] = _signed(keys.kyber_last)
    if keys.kyber_one_time:
        body["kyber_prekeys"] = [_signed(key) for key in keys.kyber_one_time]
    return body
