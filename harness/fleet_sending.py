"""Messages that devices of a fleet send, at a rate or at once, and their responses."""

from __future__ import annotations

import asyncio
import collections
import os
import time
from collections.abc import Mapping, Sequence
from typing import Any

from harness.fleet_device import STAMP, FleetDevice, body
from tidings.wire import device

# Seconds after its due time from which a message counts as late; the delay is then part of its latency.
LATE = 0.002
# Part of every id of this process, so that ids of one sender never repeat.
RUN = os.urandom(4).hex()


class Senders:
    """Counts of messages per device and per recipient, and the `Sending` of each one without a response."""

    def __init__(self) -> None:
        self.numbers: collections.Counter[str] = collections.Counter()
        self.ids: collections.Counter[tuple[str, str]] = collections.Counter()
        self.waiting: dict[tuple[str, int], Sending] = {}

    def settled(self, number: str, frame: device.Accepted | device.Refused) -> None:
        """Pass the responses to a device's messages to their `Sending`."""
        for n in frame.n if isinstance(frame, device.Accepted) else (frame.n,):
            sending = self.waiting.pop((number, n), None)
            if sending is not None:
                sending.settled(frame.reason if isinstance(frame, device.Refused) else "")


class Sending:
    """Messages along routes, round robin, in an open loop.

    routes: (sender, recipient); senders are devices of this fleet.
    rate: messages per second; 0 sends all at once.
    count: messages.
    size: bytes of a body.
    kind, epoch: of messages to groups.
    response_timeout: seconds to wait for the responses after the last message.
    """

    def __init__(
        self,
        devices: Mapping[str, FleetDevice],
        senders: Senders,
        *,
        routes: Sequence[tuple[str, str]],
        rate: float,
        count: int,
        size: int,
        kind: str = device.MESSAGE,
        epoch: int = 0,
        ttl: int = 0,
        response_timeout: float = 120.0,
    ) -> None:
        self._senders = senders
        self._routes = [(devices[sender], to) for sender, to in routes]
        self._rate = rate
        self._count = count
        self._size = size
        self._more: dict[str, Any] = {"kind": kind, "epoch": epoch, "ttl": ttl}
        self._response_timeout = response_timeout
        self._sent_at: list[float] = []
        self._left = count
        self._done = asyncio.Event()
        self.refused: collections.Counter[str] = collections.Counter()
        self.latest = 0.0

    async def run(self) -> dict[str, Any]:
        """Send all and wait for the responses.

        Returns `sent` (messages), `sent_in` (seconds until the last was sent), `settled_in` (seconds until the last
        had its response), `refused` (by reason) and `lag` (longest delay of a message after its due time, seconds).
        """
        loop = asyncio.get_running_loop()
        began = loop.time()
        for index in range(self._count):
            due = began + index / self._rate if self._rate else began
            wait = due - loop.time()
            if wait > 0:
                # Timers have millisecond resolution, and spinning would gain nothing.
                await asyncio.sleep(max(wait, 0.001))
            self._send(index, loop.time() - due if self._rate else 0.0)
        sent = loop.time() - began
        async with asyncio.timeout(self._response_timeout):
            await self._done.wait()
        return {
            "sent": self._count,
            "sent_in": sent,
            "settled_in": loop.time() - began,
            "refused": dict(self.refused),
            "lag": self.latest,
        }

    def _send(self, index: int, late: float) -> None:
        sender, to = self._routes[index % len(self._routes)]
        numbers, ids = self._senders.numbers, self._senders.ids
        numbers[sender.number] += 1
        ids[sender.number, to] += 1
        n, number = numbers[sender.number], ids[sender.number, to]
        data = body(self._size, number)
        if late > LATE:
            self.latest = max(self.latest, late)
            data = STAMP.pack(time.monotonic_ns() - int(late * 1e9), number) + data[STAMP.size :]
        self._senders.waiting[sender.number, n] = self
        sender.write(device.Send(n=n, sender=sender.number, to=to, id=f"{RUN}.{n}", body=data, **self._more))

    def settled(self, refusal: str) -> None:
        if refusal:
            self.refused[refusal] += 1
        self._left -= 1
        if not self._left:
            self._done.set()
