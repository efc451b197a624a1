"""How much work each sender may cause beyond what nearly every message needs."""

from __future__ import annotations

from prometheus_client import Counter

from tidings.runtime.clock import Clock
from tidings.runtime.token_buckets import TokenBuckets

WORK = Counter(
    "tidings_peer_work_steps_total",
    "Steps of chains (3 to 4 µs each) beyond the ordinary that messages of recipients asked for",
    ["outcome"],
)
_TAKEN, _REFUSED = WORK.labels("taken"), WORK.labels("refused")

# Of one sender: a full jump on both chains of a session and something over, or 240 set-ups, at once; another such jump
# after 17 minutes, a set-up every 5 s: 0.02 % of a CPU.
BURST = 60_000  # steps
RATE = 50.0  # steps a second
# Of all senders together, for long walks alone: first messages and set-ups of very many senders are an ordinary day.
# 4 % of a CPU.
LONG = 1_000  # steps
COMMON_BURST = 120_000
COMMON_RATE = 10_000.0
LEFT = 1_000  # steps; a sender with fewer is taken to have used up the budget
REMEMBERED = 20_000  # senders; whoever is forgotten begins again


class WorkBudget:
    """Token buckets in steps, one for each sender and one for the long walks of all."""

    def __init__(self, clock: Clock, *, remembered: int = REMEMBERED) -> None:
        self._own: TokenBuckets[str] = TokenBuckets(clock, rate=RATE, burst=BURST, remembered=remembered)
        self._common: TokenBuckets[str] = TokenBuckets(clock, rate=COMMON_RATE, burst=COMMON_BURST, remembered=1)

    def spend(self, sender: str, steps: int) -> bool:
        """May these steps be taken for this sender? They count as taken then, whatever comes of them."""
        is_long = steps >= LONG
        if self._own.wait(sender, steps) or (is_long and self._common.wait("", steps)):
            _REFUSED.inc(steps)
            return False
        self._own.add(sender, steps)
        if is_long:
            self._common.add("", steps)
        _TAKEN.inc(steps)
        return True

    def charge(self, sender: str, steps: int) -> None:
        """Count steps that were taken already. Whoever has used up the budget has no debts added to it."""
        if not self.is_used_up(sender):
            self._own.add(sender, steps)
        _TAKEN.inc(steps)

    def is_used_up(self, sender: str) -> bool:
        """Has this sender next to nothing left?"""
        return self._own.wait(sender, LEFT) > 0
