"""Peers that a device shows as typing."""

from __future__ import annotations

from tidings.aio.clock import Clock
from tidings.aio.lru import LRU
from tidings.wire.content import TYPING_SECONDS

REMEMBERED = 10_000  # pairs of device and peer


class TypingPeers:
    """Peers that are typing, for `TYPING_SECONDS` from their last typing indicator or until their next message."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        # End of each indicator in monotonic seconds, by device and peer.
        self._until: LRU[tuple[str, str], float] = LRU(REMEMBERED)

    def begin(self, number: str, peer: str) -> bool:
        """Show a peer as typing on a device. Returns whether it was not shown before."""
        now = self._clock.monotonic()
        until = self._until.get((number, peer))
        self._until.put((number, peer), now + TYPING_SECONDS)
        return until is None or until <= now

    def end(self, number: str, peer: str) -> None:
        """End the indicator of a peer whose message has arrived."""
        self._until.pop((number, peer))

    def clear(self) -> None:
        """End all indicators."""
        self._until.clear()

    def seconds_left(self, number: str) -> float | None:
        """Return the seconds until the next indicator on a device ends; `None` without any."""
        now = self._clock.monotonic()
        ends = [self._until.get(key) or 0.0 for key in list(self._until) if key[0] == number]
        return min((end - now for end in ends if end > now), default=None)

    def list_of(self, number: str) -> list[str]:
        """List the peers that are typing on a device, in ascending order."""
        now = self._clock.monotonic()
        keys = [key for key in self._until if key[0] == number]
        return sorted(peer for device, peer in keys if (self._until.get((device, peer)) or 0.0) > now)
