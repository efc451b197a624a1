"""Client that sends generated or copied requests to an installation. Requests above the limit in flight are dropped."""

from __future__ import annotations

import asyncio
import base64
import collections
import contextlib
import dataclasses
import time
from collections.abc import Mapping
from typing import Any, Self

import aiohttp

PASSWORD = "TIDINGS_TRAFFIC_PASSWORD"  # noqa: S105 (the name of the variable)
# Timeout of a request, seconds.
TIMEOUT = 30.0
# Number of latencies kept for the quantiles.
KEPT = 100_000


class LoginRefused(Exception):
    """The installation refused the login; `str()` contains the HTTP status and what to do."""


@dataclasses.dataclass(slots=True)
class RequestStatistics:
    """Counts and latencies of requests."""

    sent: int = 0
    dropped: int = 0
    # By HTTP status; `error` for requests without a response.
    statuses: collections.Counter[str] = dataclasses.field(default_factory=collections.Counter)
    # Milliseconds of the last `KEPT` requests.
    took: collections.deque[float] = dataclasses.field(default_factory=lambda: collections.deque(maxlen=KEPT))

    def describe(self) -> dict[str, Any]:
        """Return counts and quantiles as a JSON object; the quantiles are None until a request has ended."""
        ordered = sorted(self.took)
        found: dict[str, Any] = {"sent": self.sent, "dropped": self.dropped, "answers": dict(self.statuses)}
        for name, part in (("p50_ms", 0.5), ("p99_ms", 0.99)):
            found[name] = round(ordered[min(len(ordered) - 1, int(len(ordered) * part))], 1) if ordered else None
        return found


class TrafficTarget:
    """Asynchronous context manager that logs in and sends requests.

    Entering it raises `LoginRefused` and `aiohttp.ClientError`. Leaving it waits at most `TIMEOUT` seconds for
    responses.
    """

    def __init__(self, url: str, user: str, password: str, *, in_flight: int) -> None:
        """in_flight: maximum number of requests without a response; further requests are dropped."""
        self._url = url.rstrip("/")
        self._user = user
        self._basic = {"Authorization": f"Basic {base64.b64encode(f'{user}:{password}'.encode()).decode()}"}
        self._in_flight = in_flight
        self._running: set[asyncio.Task[None]] = set()
        self.stats = RequestStatistics()

    async def __aenter__(self) -> Self:
        self._http = aiohttp.ClientSession(
            timeout=aiohttp.ClientTimeout(total=TIMEOUT), connector=aiohttp.TCPConnector(limit=self._in_flight)
        )
        try:
            await self._log_in()
        except BaseException:
            await self._http.close()
            raise
        return self

    async def __aexit__(self, *error: object) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(TIMEOUT):
                await asyncio.gather(*self._running, return_exceptions=True)
        for task in self._running:
            task.cancel()
        await self._http.close()

    async def _log_in(self) -> None:
        async with self._http.post(f"{self._url}/v1/users/login", headers=self._basic, json={}) as answer:
            if answer.status != 200:
                raise LoginRefused(f"{self._url} answered the login with {answer.status}{self._remedy(answer.status)}")
            try:
                token = (await answer.json(content_type=None))["users"][0]["token"]
            except (ValueError, LookupError, TypeError):
                text = f"{self._url} answered the login with {answer.status} and without a token"
                raise LoginRefused(text + self._remedy(404)) from None
            self._headers = {"Authorization": f"Bearer {token}"}

    def _remedy(self, status: int) -> str:
        if status == 401:
            return f": is {PASSWORD} the password of {self._user}?"
        return ": is --to the base URL of the API, without /v1?" if status == 404 else ""

    def send(self, path: str, body: Mapping[str, Any]) -> None:
        """Send a request at once, or drop it if too many are in flight."""
        if len(self._running) >= self._in_flight:
            self.stats.dropped += 1
            return
        self.stats.sent += 1
        task = asyncio.get_running_loop().create_task(self._post(path, body))
        self._running.add(task)
        task.add_done_callback(self._running.discard)

    async def _post(self, path: str, body: Mapping[str, Any]) -> None:
        began = time.perf_counter()
        try:
            async with self._http.post(self._url + path, json=body, headers=self._headers) as answer:
                await answer.read()
                self.stats.statuses[str(answer.status)] += 1
        except (aiohttp.ClientError, TimeoutError):
            self.stats.statuses["error"] += 1
        self.stats.took.append((time.perf_counter() - began) * 1000)
