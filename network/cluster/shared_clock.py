"""Clock of Redis, estimated by each node, so that sequence numbers of all nodes follow the same time."""

from __future__ import annotations

from tidings.aio.clock import Clock


class SharedClock(Clock):
    """Clock of this node, corrected by as little as the heartbeats require; by 0 s when the clocks agree.

    Redis reads its clock between the request and the response, so each heartbeat bounds the difference from both sides.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        # Seconds by which the clock of Redis is ahead of this node's.
        self._ahead = 0.0

    def now(self) -> float:
        """Return Unix seconds."""
        return self._clock.now() + self._ahead

    def monotonic(self) -> float:
        """Return monotonic seconds of this node."""
        return self._clock.monotonic()

    def start(self) -> float:
        """Return the current time, Unix seconds. Call it just before the time of Redis is requested; pass the result to
        `learn`."""
        return self._clock.now()

    def learn(self, requested_at: float, redis_now: float) -> None:
        """Correct the clock with the response to a heartbeat.

        requested_at: result of `start`, Unix seconds.
        redis_now: Unix seconds of Redis, received just now.
        """
        self._ahead = min(max(self._ahead, redis_now - self._clock.now()), redis_now - requested_at)
