"""Pace of work that was left over, so that new work is served in between."""

from __future__ import annotations

import dataclasses

TICK = 0.05  # seconds between two portions
# Factor by which the rate grows per tick: by half per second.
GROWTH = 1.02
LATE = 0.01  # seconds by which the event loop may be late before the rate halves


@dataclasses.dataclass(slots=True)
class Pace:
    """Items per second: the rate grows while the event loop is on time, and halves while it is late."""

    rate: float  # initial rate, items per second
    least: float
    most: float
    _due: float = 0.0  # items, with their fraction

    def portion(self, late: float) -> int:
        """Return how many items are due at a tick.

        late: seconds by which the event loop ran the tick late
        """
        self.rate = max(self.least, self.rate / 2) if late > LATE else min(self.most, self.rate * GROWTH)
        self._due += self.rate * TICK
        count = int(self._due)
        self._due -= count
        return count
