"""Load of this process: what a balancer, or a person, looks at to see where there is room."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from prometheus_client import Gauge

from tidings.runtime.service import wait_for

LOAD = Gauge("tidings_network_load", "Part of one processor that this process used in the last second")
LAG = Gauge("tidings_network_loop_lag_seconds", "The longest that the event loop was late in the last second")
RATE = Gauge("tidings_network_envelopes_per_second", "Envelopes in the last second, from senders and to devices")

# Seconds between two looks at the clock, and looks in one measurement.
TICK, TICKS = 0.1, 10


class LoadGauge:
    """Service that measures once a second.

    load: part of one processor; near 1 the process has all that it can use. lag: seconds. rate: envelopes a second.
    """

    name = "load"

    def __init__(self, handled: Callable[[], int]) -> None:
        """handled(): envelopes that came or went since the start."""
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
        """What was measured: seconds that passed, seconds of processor time in them, envelopes, and seconds of lag."""
        self.load, self.lag, self.rate = used / seconds, lag, handled / seconds
        LOAD.set(self.load)
        LAG.set(self.lag)
        RATE.set(self.rate)
