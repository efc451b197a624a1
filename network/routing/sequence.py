"""Numbers of envelopes in the order of their arrival, which never go back, not even over a restart."""

from __future__ import annotations

from tidings.runtime.clock import Clock


class SequenceNumbers:
    """Numbers above both the last one that is stored and the time in microseconds; they stay below 2^53 until 2255."""

    def __init__(self, clock: Clock, last_stored: int) -> None:
        self._last = max(last_stored, int(clock.now() * 1_000_000))

    def next(self) -> int:
        """One more than before."""
        self._last += 1
        return self._last
