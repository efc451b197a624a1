"""The network's HTTP API about the business's own number: codes, registration, keys."""

from __future__ import annotations

import base64
import dataclasses
from collections.abc import Iterable

import httpx

from coreapp.errors import UpstreamAway, UpstreamRefused, UpstreamUnreached
from tidings import e2ee
from tidings.storage.business.shards import LeaseLost
from tidings.wire import device as frames

TIMEOUT = 30.0  # seconds for a call


@dataclasses.dataclass(frozen=True, slots=True)
class DirectoryApi:
    """url: of the network, `http://127.0.0.1:9095`."""

    url: str

    async def call(self, method: str, path: str, body: object, bearer: str) -> dict[str, object]:
        """The answer. Raises `UpstreamUnreached`, `UpstreamAway`, `UpstreamRefused`; `LeaseLost` when another owner is
        logged in under a higher epoch."""
        try:
            async with httpx.AsyncClient(base_url=self.url, timeout=TIMEOUT, trust_env=False) as client:
                headers = {"Authorization": f"Bearer {bearer}"} if bearer else {}
                answer = await client.request(method, path, json=body, headers=headers)
        except (httpx.ConnectError, httpx.ConnectTimeout) as error:
            raise UpstreamUnreached(f"{self.url}: {error!r}") from error
        except httpx.TransportError as error:
            raise UpstreamAway(f"{self.url}: {error!r}") from error
        if answer.status_code >= 500:
            raise UpstreamAway(f"{self.url}{path}: HTTP {answer.status_code}")
        if answer.status_code == 409 and frames.STALE_EPOCH in answer.text:
            raise LeaseLost("another is logged in at the network under a higher epoch")
        if not answer.is_success:
            raise UpstreamRefused(f"HTTP {answer.status_code}", answer.text[:200])
        content: dict[str, object] = answer.json()
        return content


def signed_body(key: e2ee.SignedPreKey | e2ee.KyberPreKey) -> dict[str, object]:
    """A signed key as the API takes it."""
    return {"key_id": key.key_id, "public": text(key.public), "signature": text(key.signature)}


def one_time_bodies(keys: Iterable[e2ee.PreKey]) -> list[dict[str, object]]:
    """One-time pre-keys as the API takes them."""
    return [{"key_id": key.key_id, "public": text(key.public)} for key in keys]


def text(data: bytes) -> str:
    """Bytes in JSON."""
    return base64.b64encode(data).decode()
