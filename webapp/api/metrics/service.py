"""Metrics of this Webapp, and the load of its server."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Iterator

import prometheus_client
from prometheus_client import Metric
from prometheus_client.core import GaugeMetricFamily

from tidings.aio.clock import Clock
from webapp.http.server import ServerLoad

NODE = f"{socket.gethostname()}:{os.getpid()}"


class ProcessMetrics:
    """Metrics of this process. `watch` sets the source of the server's metrics."""

    def __init__(self, clock: Clock, *, backlog: int) -> None:
        """Create the metrics.

        backlog: connections that the system queues until they are accepted
        """
        self._clock = clock
        self._started = clock.monotonic()
        self._backlog = backlog
        self._load: Callable[[], ServerLoad] = lambda: ServerLoad(0, 0, 0)
        self._most_pending = 0

    def watch(self, load: Callable[[], ServerLoad]) -> None:
        """Set the function that returns the current load of the server."""
        self._load = load

    def collect(self) -> list[Metric]:
        """Return all metrics."""
        return [*prometheus_client.REGISTRY.collect(), *self._server()]

    def _server(self) -> Iterator[Metric]:
        load = self._load()
        self._most_pending = max(self._most_pending, load.pending)
        yield _gauge("web_uptime", "Seconds since this Webapp was started", self._clock.monotonic() - self._started)
        yield _gauge("web_connections", "Open connections", load.connections)
        yield _gauge("web_pending_connections", "Connections that wait to be accepted", load.pending)
        yield _gauge(
            "web_max_pending_connections", "Maximum number of waiting connections at a scrape", self._most_pending
        )
        yield _gauge("web_idle_processes", "1 while this Webapp serves no other request", load.requests <= 1)
        yield _gauge("web_queue_len", "Maximum number of connections that wait to be accepted", self._backlog)
        family = GaugeMetricFamily("web_requests", "Connections by state", labels=["node", "state"])
        family.add_metric([NODE, "handle-request"], load.requests)
        family.add_metric([NODE, "read"], max(0, load.connections - load.requests))
        yield family


def _gauge(name: str, text: str, value: float) -> Metric:
    family = GaugeMetricFamily(name, text, labels=["node"])
    family.add_metric([NODE], value)
    return family
