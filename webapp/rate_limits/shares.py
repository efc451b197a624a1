"""What one Webapp may let through of a limit that holds for the installation.

Alone it has the whole bucket in memory. With others the bucket is a row of the database, of which each takes blocks
ahead of its demand: as many tokens as it needed in the last quarter of a second, so a Webapp that gets all the load
gets all the tokens, and no request has a statement of its own. While the database is away a Webapp goes on with the
share that it had.
"""

from __future__ import annotations

import asyncio
import math
import random
from collections.abc import Callable

from tidings.runtime.clock import Clock
from tidings.storage.business.rate_limits import Wanted
from webapp.rate_limits.buckets import TokenBucket

# Tokens that each Webapp has before anybody asks, taken off the burst, where that is big enough for it.
RESERVE = 2
# Seconds of demand that a block is for; over which the rate that was given is averaged.
AHEAD, LONG = 0.25, 5.0
# Seconds, at least and at most, until a bucket that was found empty is asked again. By chance, so that of two Webapps
# neither is always the second.
PAUSE = (0.1, 0.25)


class Share:
    """The limit of one endpoint at one Webapp."""

    def __init__(
        self,
        name: str,
        rate: float,
        burst: float,
        *,
        clock: Clock,
        wake: Callable[[], None] = lambda: None,
        chance: Callable[[float, float], float] = random.uniform,
    ) -> None:
        """wake(): called when tokens are needed; `wanted` then says how many."""
        self.name = name
        self._rate = rate
        self._burst = max(burst, 1.0)
        self._clock = clock
        self._wake = wake
        self._chance = chance
        self._members = 1
        # While alone, or while the database is away.
        self._own: TokenBucket | None = TokenBucket(rate, burst, clock)
        self._tokens = 0
        # At which more are asked for.
        self._low = 0
        self._taken_at = clock.monotonic()
        self._empty_until = -math.inf
        # Requests since the last block, about as many as came in the last `AHEAD` seconds before it, tokens a second.
        self._offered = 0
        self._recent = 0.0
        self._given_rate = 0.0
        # More was asked for, and has not come.
        self._is_hungry = False
        self._waiting: list[asyncio.Future[None]] = []

    @property
    def is_shared(self) -> bool:
        return self._members > 1 and self._rate > 0

    def set_members(self, count: int) -> None:
        """So many Webapps are there, this one among them."""
        before, self._members = self.is_shared, max(count, 1)
        if self.is_shared and not before:
            self._own, self._tokens, self._offered, self._empty_until = None, 0, 0, -math.inf
            self._need()
        elif before and not self.is_shared:
            self._own = TokenBucket(self._rate, self._burst, self._clock, tokens=self._tokens)
            self._release()

    def is_short(self) -> bool:
        """Should whoever comes wait for `replenished` first, because the bucket may have more?"""
        return self._own is None and self._tokens < 1 and self._clock.monotonic() >= self._empty_until

    async def replenished(self) -> None:
        """Wait for the next block, for as long as the database may take."""
        waiting = asyncio.get_running_loop().create_future()
        self._waiting.append(waiting)
        self._need()
        await waiting

    def take(self) -> float:
        """Take one token: 0.0 when there was one, otherwise the seconds until there may be."""
        self._offered += 1
        if self._own is not None:
            if self.is_shared and not self._is_hungry:
                self._need()
            return self._own.take()
        now = self._clock.monotonic()
        if self._tokens > self._reserve and now - self._taken_at > self._stale:
            # So long after, the bucket would have been full without them.
            self._tokens = self._reserve
        if self._tokens <= self._low and not self._is_hungry:
            self._need()
        if self._tokens >= 1:
            self._tokens -= 1
            return 0.0
        return max(self._empty_until - now, self._members / self._rate)

    def due_at(self) -> float:
        """The clock's time from which `wanted` has an answer; infinity for when nothing is needed."""
        return self._empty_until if self.is_shared and self._is_hungry else math.inf

    def wanted(self) -> Wanted | None:
        """What to ask the bucket for now."""
        if not self.is_shared:
            return None
        now = self._clock.monotonic()
        if now < self._empty_until:
            return None
        passed = now - self._taken_at
        self._recent = self._recent * math.exp(-passed / AHEAD) + self._offered * min(1.0, AHEAD / max(passed, 1e-3))
        self._given_rate *= math.exp(-passed / LONG)
        self._offered, self._taken_at = 0, now
        level = len(self._waiting) + math.ceil(self._recent) + self._reserve
        self._low = level // 2
        tokens = min(len(self._waiting) + level - self._tokens, int(self._burst))
        burst = max(self._burst - self._reserve * self._members, 1.0)
        if tokens <= 0:
            # Else it would be due from now on, and asked again and again.
            self._is_hungry = False
            return None
        return Wanted(self.name, tokens, self._rate, burst)

    def given(self, wanted: Wanted, tokens: int) -> None:
        """The bucket gave so many of what was wanted."""
        if not self.is_shared:
            return
        self._own, self._is_hungry = None, False
        self._tokens += tokens
        self._given_rate += tokens / LONG
        if tokens < wanted.tokens:
            self._empty_until = self._clock.monotonic() + self._chance(*PAUSE)
        self._release()

    def not_given(self) -> None:
        """The database did not say: go on with the share that there was, or with an equal one."""
        if self._own is None:
            share = min(max(self._given_rate, self._rate / self._members), self._rate)
            burst = self._burst * share / self._rate
            self._own = TokenBucket(share, burst, self._clock, tokens=self._tokens)
            self._tokens = 0
        self._empty_until, self._is_hungry = self._clock.monotonic() + PAUSE[1], False
        self._release()

    @property
    def _reserve(self) -> int:
        return RESERVE if self._burst >= 4 * RESERVE * self._members else 0

    @property
    def _stale(self) -> float:
        return max(self._burst / self._rate, 1.0)

    def _need(self) -> None:
        self._is_hungry = True
        self._wake()

    def _release(self) -> None:
        waiting, self._waiting = self._waiting, []
        for each in waiting:
            if not each.done():
                each.set_result(None)
