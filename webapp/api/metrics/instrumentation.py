"""HTTP metrics: a latency histogram by endpoint, method and class of status, and the sums of the On-Premises API."""

from __future__ import annotations

import functools
import time
from typing import Any, Protocol

from prometheus_fastapi_instrumentator import metrics
from prometheus_fastapi_instrumentator.middleware import PrometheusInstrumentatorMiddleware
from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from tidings.aio.lru import LRU
from tidings.observability.hot_metrics import HotBuckets, HotHistogram, HotSum, HotSummary
from webapp.api.metrics.service import NODE

LATENCY = HotHistogram(
    "http_request_duration_seconds",
    "Duration of HTTP requests in seconds",
    ["handler", "method", "status"],
    buckets=(0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30),
)

DURATION = HotSummary("api_requests_duration_ms", "API requests and their duration", ["node", "result", "method"])


class OtherRoutes(Protocol):
    """Paths that the router does not know."""

    def claims(self, path: str) -> bool: ...

    def route(self, path: str) -> str:
        """Return the route of a claimed path, with placeholders for ids."""
        ...


class RememberingMiddleware(PrometheusInstrumentatorMiddleware):
    """Middleware of the instrumentator that caches which route a path matches, and copies no headers."""

    def __init__(self, app: Any, /, other: OtherRoutes | None, **options: Any) -> None:
        """other: routes in addition to the router's; `None` for none"""
        super().__init__(app, **options)
        self._other = other
        self._handlers: LRU[tuple[str, str], tuple[str, bool]] = LRU(1_000)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Observe one request.

        The instrumentator's own method builds a second response from all headers, which costs more than the metrics.
        """
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        started, status = time.perf_counter(), 500
        request = Request(scope)
        found, has_route = self._get_handler(request)
        handler = found if has_route else "none"

        async def send_observed(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            await self.app(scope, receive, send_observed)
        finally:
            seconds = max(time.perf_counter() - started, 0.0)
            info = metrics.Info(request, None, request.method, handler, str(status), seconds)
            for instrumentation in self.instrumentations:
                instrumentation(info)

    def _get_handler(self, request: Request) -> tuple[str, bool]:
        key = (request.scope["method"], request.scope["path"])
        handler = self._handlers.get(key)
        if handler is None:
            path = request.scope["path"]
            if self._other is not None and self._other.claims(path):
                handler = (self._other.route(path), True)
            else:
                handler = super()._get_handler(request)
            self._handlers.put(key, handler)
        return handler


def instrument(app: ASGIApp, other: OtherRoutes | None = None) -> ASGIApp:
    """Return a layer that counts every request to `app`. Paths without an endpoint count as `none`.

    other: routes in addition to the router's; `None` for none
    """
    return RememberingMiddleware(app, other=other, instrumentations=[_observe_info])


def observe(method: str, handler: str, status: int, seconds: float) -> None:
    """Count a request. Hot routes, which the middleware does not see, call it themselves."""
    latency, duration = _metrics_of(method, handler, status)
    latency.observe(seconds)
    duration.observe(seconds * 1000)


def _observe_info(info: metrics.Info) -> None:
    observe(info.method, info.modified_handler, int(info.modified_status), info.modified_duration)


@functools.lru_cache(4096)
def _metrics_of(method: str, handler: str, status: int) -> tuple[HotBuckets, HotSum]:
    """Return the cached metrics of an endpoint, because looking up labels costs more than observing.

    In the summary, endpoints are named as in the On-Premises API: `GET_v1_users_username`.
    """
    name = "_".join(part.strip("{}") for part in (method, *handler.strip("/").split("/")) if part)
    latency = LATENCY.labels(handler, method, f"{status // 100}xx")
    return latency, DURATION.labels(NODE, str(status), name)
