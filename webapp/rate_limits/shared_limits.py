"""One Webapp's part of a rate limit that holds for the installation.

A single Webapp has the whole bucket in memory. Several Webapps share a bucket that is a row of the database.
Each takes blocks of tokens ahead of its demand: as many as it needed in the last quarter of a second.
A Webapp that receives the whole load therefore gets all the tokens, and single requests cost no statement.
While the database is unavailable, a Webapp continues at the rate that it had.
"""

from __future__ import annotations

import asyncio
import math
import random
from collections.abc import Callable

from tidings.aio.clock import Clock
from tidings.storage.business.rate_limits import TokenRequest
from webapp.rate_limits.buckets import TokenBucket

# Tokens that each Webapp holds in reserve before the first request. They are deducted from the burst if it is large
# enough.
RESERVE = 2
# Seconds of demand that a block covers, and seconds over which the rate of received tokens is averaged.
AHEAD, LONG = 0.25, 5.0
# Minimum and maximum seconds until an empty bucket is tried again. The pause is random so that of two Webapps neither
# is always second.
PAUSE = (0.1, 0.25)


class SharedLimit:
    """Rate limit of one endpoint at one Webapp."""

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
        """Create the limit.

        rate: tokens per second; 0 for no limit
        burst: tokens that the bucket holds
        wake: called when tokens are needed, whose number `wanted` then returns
        """
        self.name = name
        self._rate = rate
        self._burst = max(burst, 1.0)
        self._clock = clock
        self._wake = wake
        self._chance = chance
        self._members = 1
        # Bucket in use while this Webapp is alone or the database is unavailable; `None` otherwise.
        self._own: TokenBucket | None = TokenBucket(rate, burst, clock)
        self._tokens = 0
        # Number of tokens at or below which more are requested.
        self._low = 0
        self._taken_at = clock.monotonic()
        self._empty_until = -math.inf
        # Requests since the last block, decayed number of requests per `AHEAD` seconds before it, and tokens received
        # per second.
        self._offered = 0
        self._recent = 0.0
        self._given_rate = 0.0
        # Whether tokens were requested and have not arrived yet.
        self._is_requesting = False
        self._waiting: list[asyncio.Future[None]] = []

    @property
    def is_shared(self) -> bool:
        return self._members > 1 and self._rate > 0

    def set_members(self, count: int) -> None:
        """Divide the limit between `count` Webapps, including this one."""
        before, self._members = self.is_shared, max(count, 1)
        if self.is_shared and not before:
            self._own, self._tokens, self._offered, self._empty_until = None, 0, 0, -math.inf
            self._need()
        elif before and not self.is_shared:
            self._own = TokenBucket(self._rate, self._burst, self._clock, tokens=self._tokens)
            self._release()

    def set_rate(self, rate: float, burst: float) -> None:
        """Change the rate and the burst, neither of which is or becomes unlimited. Tokens are kept."""
        if (rate, max(burst, 1.0)) == (self._rate, self._burst):
            return
        self._rate, self._burst = rate, max(burst, 1.0)
        if self._own is not None:
            share = 1 / self._members if self.is_shared else 1.0
            self._own = TokenBucket(rate * share, burst * share, self._clock, tokens=self._own.tokens)

    def is_short(self) -> bool:
        """Return whether a request should first wait for `replenished`, because the shared bucket may have tokens."""
        return self._own is None and self._tokens < 1 and self._clock.monotonic() >= self._empty_until

    async def replenished(self) -> None:
        """Wait for the next block, as long as the database may take."""
        waiting = asyncio.get_running_loop().create_future()
        self._waiting.append(waiting)
        self._need()
        await waiting

    def take(self) -> float:
        """Take one token. Returns 0.0 on success, otherwise the seconds until a token may be available."""
        self._offered += 1
        if self._own is not None:
            if self.is_shared and not self._is_requesting:
                self._need()
            return self._own.take()
        now = self._clock.monotonic()
        if self._tokens > self._reserve and now - self._taken_at > self._stale:
            # The shared bucket would have refilled to its burst by now, so these tokens would exceed it.
            self._tokens = self._reserve
        if self._tokens <= self._low and not self._is_requesting:
            self._need()
        if self._tokens >= 1:
            self._tokens -= 1
            return 0.0
        return max(self._empty_until - now, self._members / self._rate)

    def due_at(self) -> float:
        """Return the clock's time from which `wanted` returns something; infinity when no tokens are needed."""
        return self._empty_until if self.is_shared and self._is_requesting else math.inf

    def wanted(self) -> TokenRequest | None:
        """Return the request to the shared bucket; `None` when no tokens are needed now."""
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
            # Without this, `due_at` would stay in the past and the bucket would be tried continuously.
            self._is_requesting = False
            return None
        return TokenRequest(self.name, tokens, self._rate, burst)

    def given(self, wanted: TokenRequest, tokens: int) -> None:
        """Add the tokens that the shared bucket gave, which may be fewer than wanted."""
        if not self.is_shared:
            return
        self._own, self._is_requesting = None, False
        self._tokens += tokens
        self._given_rate += tokens / LONG
        if tokens < wanted.tokens:
            self._empty_until = self._clock.monotonic() + self._chance(*PAUSE)
        self._release()

    def not_given(self) -> None:
        """Continue with a bucket of this Webapp after tokens could not be taken from the database.

        Its rate is the rate of received tokens, but at least an equal part of the limit.
        """
        if self._own is None:
            share = min(max(self._given_rate, self._rate / self._members), self._rate)
            burst = self._burst * share / self._rate
            self._own = TokenBucket(share, burst, self._clock, tokens=self._tokens)
            self._tokens = 0
        self._empty_until, self._is_requesting = self._clock.monotonic() + PAUSE[1], False
        self._release()

    @property
    def _reserve(self) -> int:
        return RESERVE if self._burst >= 4 * RESERVE * self._members else 0

    @property
    def _stale(self) -> float:
        return max(self._burst / self._rate, 1.0)

    def _need(self) -> None:
        self._is_requesting = True
        self._wake()

    def _release(self) -> None:
        waiting, self._waiting = self._waiting, []
        for each in waiting:
            if not each.done():
                each.set_result(None)
