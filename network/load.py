"""Load of this process, by which load balancers and operators find a node with free capacity."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from prometheus_client import Gauge

from tidings.aio.service import wait_for

LOAD = Gauge("tidings_network_load", "Share of one core that this process used in the last second")
LAG = Gauge("tidings_network_loop_lag_seconds", "Maximum delay of the event loop in the last second")
RATE = Gauge("tidings_network_envelopes_per_second", "Envelopes per second, from senders and to devices")

# Seconds between two samples of the event loop's lag, and samples in one measurement.
TICK, TICKS = 0.1, 10


class LoadGauge:
    """Service that measures the load of this process once a second.

    load: share of one processor core that was used; near 1 the process is at its limit.
    lag: longest delay of the event loop, seconds.
    rate: envelopes per second, from senders and to devices.
    """

    name = "load"

    def __init__(self, handled: Callable[[], int]) -> None:
        """handled: return the number of envelopes received and delivered since the start."""
        self._handled = handled
        self.load = self.lag = self.rate = 0.0

    async def run(self, stop: asyncio.Event) -> None:
        loop = asyncio.get_running_loop()
        while not stop.is_set():
            began, used, handled, lag = loop.time(), time.process_time(), self._handled(), 0.0
            for _ in range(TICKS):
                due = loop.time() + TICK
                if await wait_for(stop, TICK):
                    return
                lag = max(lag, loop.time() - due)
            self.note(loop.time() - began, time.process_time() - used, self._handled() - handled, lag)

    def note(self, seconds: float, used: float, handled: int, lag: float) -> None:
        """Record one measurement.

        seconds: wall-clock time that passed.
        used: processor time used in it, seconds.
        handled: envelopes received and delivered in it.
        lag: longest delay of the event loop in it, seconds.
        """
        self.load, self.lag, self.rate = used / seconds, lag, handled / seconds
        LOAD.set(self.load)
        LAG.set(self.lag)
        RATE.set(self.rate)
