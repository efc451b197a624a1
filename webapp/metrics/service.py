"""What this Webapp counts, and how busy its server is."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Iterator

import prometheus_client
from prometheus_client import Metric
from prometheus_client.core import GaugeMetricFamily

from tidings.runtime.clock import Clock

NODE = f"{socket.gethostname()}:{os.getpid()}"


class Metrics:
    """The metrics of this process. `watch` says where the server's numbers come from, once there is one."""

    def __init__(self, clock: Clock, *, backlog: int) -> None:
        """backlog: connections that the system holds until they are taken."""
        self._clock = clock
        self._started = clock.monotonic()
        self._backlog = backlog
        self._busy: Callable[[], tuple[int, int]] = lambda: (0, 0)

    def watch(self, busy: Callable[[], tuple[int, int]]) -> None:
        """busy(): how many connections are open, and how many requests are being served."""
        self._busy = busy

    def collect(self) -> list[Metric]:
        """All of them."""
        return [*prometheus_client.REGISTRY.collect(), *self._server()]

    def _server(self) -> Iterator[Metric]:
        connections, requests = self._busy()
        yield _gauge("web_uptime", "Seconds since this Webapp was started", self._clock.monotonic() - self._started)
        yield _gauge("web_connections", "Open connections", connections)
        yield _gauge("web_queue_len", "Connections that may wait to be taken", self._backlog)
        family = GaugeMetricFamily("web_requests", "Connections by what they do", labels=["node", "state"])
        family.add_metric([NODE, "handle-request"], requests)
        family.add_metric([NODE, "read"], max(0, connections - requests))
        yield family


def _gauge(name: str, text: str, value: float) -> Metric:
    family = GaugeMetricFamily(name, text, labels=["node"])
    family.add_metric([NODE], value)
    return family
