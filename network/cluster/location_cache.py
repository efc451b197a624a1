"""Location cache: the nodes that devices were last found on."""

from __future__ import annotations

import dataclasses
import math

from network.cluster.frames import Claim, Claims
from network.cluster.presence import owner
from tidings.aio.clock import Clock
from tidings.aio.lru import LRU

# Numbers remembered, about 300 bytes each.
REMEMBERED = 100_000
# Seconds for which a device that was not found counts as detached; envelopes received in that time are stored, and
# followed by a relocation check. A device that was found counts as attached until its node responds otherwise.
AWAY_SECONDS = 1.0


@dataclasses.dataclass(frozen=True, slots=True)
class _Found:
    claims: Claims
    until: float


class LocationCache:
    """Claims by number, in memory."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._found: LRU[str, _Found] = LRU(REMEMBERED)

    def get(self, number: str) -> Claims | None:
        """Return the cached claims of a number, `None` when there are none."""
        found = self._found.get(number)
        if found is None or found.until <= self._clock.monotonic():
            return None
        return found.claims

    def learn(self, number: str, claims: Claims) -> None:
        """Cache claims that were found."""
        is_whole = bool(claims) and all(owner(claims, hash_slot) for hash_slot in range(_partitions(claims)))
        until = math.inf if is_whole else self._clock.monotonic() + AWAY_SECONDS
        self._found.put(number, _Found(claims, until))

    def evict(self, number: str) -> None:
        """Drop a number whose device is not where it was found."""
        self._found.pop(number)

    def clear(self) -> None:
        """Drop all numbers after a change of membership."""
        self._found.clear()


def _partitions(claims: Claims) -> int:
    return max(claim.partitions for claim in claims.values())


def holder(claims: Claims, hash_slot: int) -> str:
    """Return the node of the partition that a hash slot belongs to, empty for none."""
    found: Claim | None = owner(claims, hash_slot)
    return found.node if found is not None else ""
