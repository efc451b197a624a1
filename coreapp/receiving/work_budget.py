"""Budget for the work that each sender may cause beyond the need of nearly every message."""

from __future__ import annotations

from prometheus_client import Counter

from tidings.aio.clock import Clock
from tidings.aio.token_buckets import TokenBuckets

WORK = Counter(
    "tidings_peer_work_steps_total",
    "Extra chain steps (3 to 4 µs each) that recipients' messages required",
    ["outcome"],
)
_TAKEN, _REFUSED = WORK.labels("taken"), WORK.labels("refused")

# Per sender: at once, a full jump on both chains of a session and a margin, or 240 session set-ups. Later, another such
# jump after 17 minutes, or a set-up every 5 s: 0.02 % of a CPU.
BURST = 60_000  # steps at once
RATE = 50.0  # steps per second
# For all senders together, and only for long walks: first messages and set-ups of many senders are normal load. 4 % of
# a CPU.
LONG = 1_000  # steps from which a walk counts as long
COMMON_BURST = 120_000  # steps at once
COMMON_RATE = 10_000.0  # steps per second
LEFT = 1_000  # steps; a sender with fewer has exhausted the budget
REMEMBERED = 20_000  # senders; an evicted one gets a full budget


class WorkBudget:
    """Token buckets in steps: one per sender, and one for the long walks of all senders."""

    def __init__(self, clock: Clock, *, remembered: int = REMEMBERED) -> None:
        self._own: TokenBuckets[str] = TokenBuckets(clock, rate=RATE, burst=BURST, remembered=remembered)
        self._common: TokenBuckets[str] = TokenBuckets(clock, rate=COMMON_RATE, burst=COMMON_BURST, remembered=1)

    def spend(self, sender: str, steps: int) -> bool:
        """Consume steps for this sender if the budget allows it. Returns whether it does. Allowed steps count whatever
        their result.
        """
        is_long = steps >= LONG
        if self._own.wait(sender, steps) or (is_long and self._common.wait("", steps)):
            _REFUSED.inc(steps)
            return False
        self._own.add(sender, steps)
        if is_long:
            self._common.add("", steps)
        _TAKEN.inc(steps)
        return True

    def consume(self, sender: str, steps: int) -> None:
        """Consume steps that were already done. A sender with an exhausted budget gets no further debt."""
        if not self.is_used_up(sender):
            self._own.add(sender, steps)
        _TAKEN.inc(steps)

    def is_used_up(self, sender: str) -> bool:
        """Return whether this sender has exhausted the budget."""
        return self._own.wait(sender, LEFT) > 0
