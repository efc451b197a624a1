"""Network whose clients register from many addresses and read the codes in its log."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import AsyncIterator, Mapping
from typing import Any

import aiohttp
import pytest

from tests.manual_clock import ManualClock
from tests.network.support import ALICE, Network, registration
from tidings.http.listener_settings import UnauthenticatedSettings

PIN, WRONG_PIN = "246813", "135792"
DAY = 86_400
# Limits on HTTP requests as such are not under test here.
OPEN = UnauthenticatedSettings(connections=10_000, connections_each=10_000, rate=0, rate_each=0)

Response = tuple[int, dict[str, Any]]


class Scene:
    """Network, clients at many loopback addresses, and the codes in the network's log."""

    def __init__(self, network: Network, caplog: pytest.LogCaptureFixture) -> None:
        self.network = network
        self.clock = ManualClock()
        self._caplog = caplog

    async def start(self, **changes: Any) -> None:
        await self.network.start(clock=self.clock, unauthenticated=OPEN, **changes)

    @contextlib.asynccontextmanager
    async def _client(self, host: str) -> AsyncIterator[aiohttp.ClientSession]:
        url = f"http://127.0.0.1:{self.network.nodes[-1].addresses.http[1]}"
        async with aiohttp.ClientSession(url, connector=aiohttp.TCPConnector(local_addr=(host, 0))) as http:
            yield http

    async def post(
        self, host: str, path: str, body: Mapping[str, Any], *, token: str = "", forwarded: str = ""
    ) -> Response:
        """Send a request from a loopback address. forwarded: its `X-Forwarded-For`, empty for none."""
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        if forwarded:
            headers["X-Forwarded-For"] = forwarded
        async with self._client(host) as http, http.post(path, json=body, headers=headers) as response:
            return response.status, await response.json()

    async def code(self, host: str, number: str = ALICE, *, token: str = "", forwarded: str = "") -> str:
        """Request a code and read it from the log."""
        self._caplog.clear()
        with self._caplog.at_level(logging.INFO):
            status, response = await self.post(host, "/v1/codes", {"number": number}, token=token, forwarded=forwarded)
        assert status == 202, response
        (record,) = [record for record in self._caplog.records if record.message == "code.issued"]
        code: str = record.__dict__["code"]
        return code

    async def register(
        self, host: str, number: str = ALICE, *, key: str = "", forwarded: str = "", **fields: Any
    ) -> Response:
        body = {**registration(number, prekeys=0, kyber=False), **fields}
        status, response = await self.post(host, "/v1/registrations", body, token=key, forwarded=forwarded)
        if status == 201:
            self.network.tokens[number] = response["token"]
        return status, response


def other_than(code: str) -> str:
    """Return a wrong code of the same length."""
    return ("0" if code[0] != "0" else "1") + code[1:]
