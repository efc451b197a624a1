"""Connection to the network that reconnects, with growing delays, whenever it is lost."""

from __future__ import annotations

import asyncio
import logging
import random
from abc import ABC, abstractmethod
from typing import Any

from tidings.aio.service import wait_for
from tidings.client.transports import Dial, FrameTransport
from tidings.wire import device

log = logging.getLogger(__name__)

PING_SECONDS = 20.0  # seconds between pings
SILENCE_SECONDS = 50.0  # seconds without a frame from the network before the connection is dropped
DIAL_SECONDS = 10.0
CLOSING_SECONDS = 1.0  # seconds to write queued frames when stopping
STEADY_SECONDS = 1.0  # a connection that lasted longer resets the back-off


class Reconnecting(ABC):
    """Base class that dials, pings, drops silent connections and reconnects. Subclasses handle the frames."""

    def __init__(self, dial: Dial, *, name: str, backoff: tuple[float, float]) -> None:
        self.name = name
        self._dial = dial
        self._backoff = backoff
        self._transport: FrameTransport | None = None
        self._closed = asyncio.Event()
        self._failure: Exception | None = None

    @property
    def is_open(self) -> bool:
        return self._transport is not None and self._transport.is_open

    async def _keep_up(self, stop: asyncio.Event) -> None:
        """Stay connected until `stop`. Raises the error given to `fail`."""
        (first, longest), loop, lost = self._backoff, asyncio.get_running_loop(), False
        delay, self._failure = first, None
        while not stop.is_set():
            self._closed.clear()
            try:
                async with asyncio.timeout(DIAL_SECONDS):
                    await self._dial(self)
            except (OSError, TimeoutError) as error:
                if not lost:
                    log.warning("network.away", extra={"link": self.name, "error": str(error) or repr(error)})
                    self._unreachable()
                lost = True
            else:
                log.info("network.connected", extra={"link": self.name})
                connected_at = loop.time()
                await self._stay(stop)
                lost = False
                if loop.time() - connected_at > STEADY_SECONDS:
                    delay = first
            if self._failure is not None:
                raise self._failure
            # The delay is random, so that clients that lost their connections together do not reconnect together.
            await wait_for(stop, random.uniform(0.0, delay))  # noqa: S311
            delay = min(delay * 2, longest)

    async def _stay(self, stop: asyncio.Event) -> None:
        """Ping until the connection is closed, or close it when `stop` is set."""
        transport, loop = self._transport, asyncio.get_running_loop()
        stopping = asyncio.ensure_future(stop.wait())
        closing = asyncio.ensure_future(self._closed.wait())
        try:
            while transport is not None:
                await asyncio.wait((stopping, closing), timeout=PING_SECONDS, return_when=asyncio.FIRST_COMPLETED)
                if closing.done():
                    return
                if stopping.done():
                    transport.close("shutdown")
                    await asyncio.wait((closing,), timeout=CLOSING_SECONDS)
                    return
                if loop.time() - transport.last_received > SILENCE_SECONDS:
                    transport.abort("the network is silent")
                elif self._is_stuck():
                    transport.abort("the network does not respond")
                else:
                    transport.send(device.Ping())
        finally:
            stopping.cancel()
            closing.cancel()
            if transport is not None and transport is self._transport:
                transport.abort("shutdown")
                self.closed(transport, "shutdown")

    @property
    def silence(self) -> float:
        """Return the seconds since data last arrived from the network; 0 without a connection."""
        if self._transport is None:
            return 0.0
        return asyncio.get_running_loop().time() - self._transport.last_received

    def drop(self, reason: str) -> None:
        """Drop the connection. It reconnects, and the network redelivers everything unacknowledged."""
        if self._transport is not None:
            self._transport.abort(reason)

    def fail(self, error: Exception) -> None:
        """Drop the connection without reconnecting: `run` raises `error`."""
        self._failure = error
        self.drop(str(error))

    # Called by the transport (`tidings.wire.connection.Handler`).

    def opened(self, transport: Any) -> None:
        self._transport = transport
        self._up()

    def closed(self, transport: Any, reason: str) -> None:
        if transport is self._transport:
            log.info("network.disconnected", extra={"link": self.name, "reason": reason})
            self._transport = None
            self._closed.set()
            self._down(reason)

    @abstractmethod
    def received(self, transport: Any, frame: Any) -> None: ...

    # Implemented by the subclass.

    @abstractmethod
    def _up(self) -> None:
        """Called when the connection is open."""

    @abstractmethod
    def _down(self, reason: str) -> None:
        """Called when the connection is lost."""

    @abstractmethod
    def _unreachable(self) -> None:
        """Called at the first failed dial after a working connection or the start, not for further attempts."""

    @abstractmethod
    def _is_stuck(self) -> bool:
        """Return whether the network has left something unanswered for too long."""
