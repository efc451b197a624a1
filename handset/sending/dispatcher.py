"""Outboxes of a fleet in memory: committed envelopes are sent when due, and removed when they are accepted."""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Collection, Iterable, Sequence

from handset.devices.device import Device
from tidings.aio.clock import Clock
from tidings.storage.handset.outbox import OutboxRow

LONGEST_DELAY = 3600.0  # seconds; a longer one comes from a clock that was ahead
RETRY_SECONDS = 1.0  # seconds before an envelope refused as `overloaded` is offered again


class Dispatcher:
    """Dispatches envelopes for a `MessageStore`. The connections remove them from the devices' outboxes."""

    def __init__(self, clock: Clock, *, limit: int) -> None:
        """Create a dispatcher.

        limit: number of envelopes at which `wait_for_room` starts to wait
        """
        self._limit = limit
        self._clock = clock
        # Monotonic time, position, whether the envelope was refused before, and device.
        self._due: list[tuple[float, int, bool, Device]] = []
        # Positions of envelopes that must not be sent yet.
        self._delayed: set[int] = set()
        self._timer: asyncio.TimerHandle | None = None
        # Positions of envelopes that do not count towards the limit.
        self._set_aside: set[int] = set()
        self._room = asyncio.Event()
        self._empty = asyncio.Event()
        self._empty.set()
        self._settled = asyncio.Event()
        self._closed = False
        self.outstanding = 0  # envelopes that the network has not accepted
        # Positions whose rows can be deleted.
        self.accepted: list[int] = []

    async def wait_for_room(self) -> None:
        """Wait while the outboxes are full."""
        while not self._has_room and not self._closed:
            self._room.clear()
            await self._room.wait()

    @property
    def _has_room(self) -> bool:
        return self.outstanding - len(self._set_aside) < self._limit

    def set_aside(self, envelope: OutboxRow) -> None:
        """Exclude an envelope from the limit until it is settled: another one that replaces it needs the room.

        Excludes at most as many envelopes as the limit allows, which bounds the outboxes at twice the limit.
        """
        if len(self._set_aside) < self._limit:
            self._set_aside.add(envelope.position)
            if self._has_room:
                self._room.set()

    async def wait_until_empty(self) -> None:
        """Wait until the network has accepted all envelopes."""
        await self._empty.wait()

    async def wait_until_gone(self, device: Device, message_ids: Collection[str]) -> None:
        """Wait until the network has accepted these messages of a device, or has refused them permanently."""
        wanted = set(message_ids)
        while any(envelope.id in wanted for envelope in device.outbox.values()):
            self._settled.clear()
            await self._settled.wait()

    def dispatch(self, envelopes: Sequence[tuple[Device, OutboxRow]]) -> None:
        """Add committed envelopes to their devices' outboxes and send those that are due."""
        now = self._clock.now_ms()
        self.outstanding += len(envelopes)
        if self.outstanding:
            self._empty.clear()
        held_back = False
        for device, envelope in envelopes:
            device.outbox[envelope.position] = envelope
            if envelope.due_at > now:
                self._delayed.add(envelope.position)
                due = self._clock.monotonic_at(envelope.due_at, longest=LONGEST_DELAY)
                heapq.heappush(self._due, (due, envelope.position, False, device))
                held_back = True
            elif device.channel is not None:
                device.channel.offer(device, envelope)
        if held_back:
            self._set_timer()

    def is_due(self, envelope: OutboxRow) -> bool:
        """Return whether a dispatched envelope may be sent."""
        return envelope.position not in self._delayed

    def settled(self, positions: Iterable[int]) -> None:
        """Remove the envelopes that the network has accepted or refused permanently."""
        before = len(self.accepted)
        self.accepted += positions
        self.outstanding -= len(self.accepted) - before
        self._set_aside.difference_update(self.accepted[before:])
        self._settled.set()
        if self._has_room:
            self._room.set()
        if not self.outstanding:
            self._empty.set()

    def postpone(self, device: Device, envelope: OutboxRow) -> None:
        """Offer an envelope again after `RETRY_SECONDS`."""
        heapq.heappush(self._due, (self._clock.monotonic() + RETRY_SECONDS, envelope.position, True, device))
        self._set_timer()

    def send_delayed(self, device: Device, peer: str, kind: str) -> None:
        """Send the delayed envelopes of this kind to a peer at once."""
        for position, envelope in list(device.outbox.items()):
            if envelope.kind == kind and envelope.peer == peer and position in self._delayed:
                self._delayed.discard(position)
                if device.channel is not None:
                    device.channel.offer(device, envelope)

    def release_due(self) -> None:
        """Send the envelopes whose delay has expired."""
        now = self._clock.monotonic()
        while self._due and self._due[0][0] <= now:
            _, position, was_refused, device = heapq.heappop(self._due)
            if not was_refused and position not in self._delayed:
                # `send_delayed` has sent it.
                continue
            self._delayed.discard(position)
            envelope = device.outbox.get(position)
            if envelope is not None and device.channel is not None:
                device.channel.offer(device, envelope)
        self._set_timer()

    def close(self) -> None:
        """Stop delaying callers and sending by timer."""
        self._closed = True
        self._room.set()
        if self._timer is not None:
            self._timer.cancel()

    def _set_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._due and not self._closed:
            delay = max(0.0, self._due[0][0] - self._clock.monotonic())
            self._timer = asyncio.get_running_loop().call_later(delay, self.release_due)
