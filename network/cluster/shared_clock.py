"""The clock of Redis, which all nodes estimate: numbers of their envelopes follow it, whatever their own clocks say."""

from __future__ import annotations

from tidings.runtime.clock import Clock


class SharedClock:
    """This node's clock, corrected by as little as the heartbeats allow: by nothing where the clocks agree.

    Redis read its clock between the request and the answer, so each heartbeat bounds the difference from both sides.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        # Seconds that Redis' clock is ahead of this node's.
        self._ahead = 0.0

    def now(self) -> float:
        """Return Unix seconds."""
        return self._clock.now() + self._ahead

    def monotonic(self) -> float:
        """Return monotonic seconds of this node."""
        return self._clock.monotonic()

    def start(self) -> float:
        """Return the moment at which Redis is asked for its time, for `learn`."""
        return self._clock.now()

    def learn(self, asked: float, answer: float) -> None:
        """Correct the clock. asked: as of `start`; answer: Redis' Unix seconds, which have just come."""
        self._ahead = min(max(self._ahead, answer - self._clock.now()), answer - asked)
