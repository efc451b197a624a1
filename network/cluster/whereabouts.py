"""Whereabouts of devices, as they were found lately."""

from __future__ import annotations

import dataclasses
import math

from network.cluster.frames import Claim, Claims
from network.cluster.presence import owner
from tidings.runtime.clock import Clock
from tidings.runtime.lru import LRU

# Numbers that are remembered; about 300 bytes each.
REMEMBERED = 100_000
# Seconds for which a device that was not there is taken to be away: what comes meanwhile is stored, and looked after
# when it is. One that was there is taken to be there until its node says otherwise.
AWAY_SECONDS = 1.0


@dataclasses.dataclass(frozen=True, slots=True)
class _Found:
    claims: Claims
    until: float


class Whereabouts:
    """Claims by number, in memory."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._found: LRU[str, _Found] = LRU(REMEMBERED)

    def get(self, number: str) -> Claims | None:
        """Who has the device, as far as it is known; `None` is no answer."""
        found = self._found.get(number)
        if found is None or found.until <= self._clock.monotonic():
            return None
        return found.claims

    def learn(self, number: str, claims: Claims) -> None:
        """What was found."""
        is_whole = bool(claims) and all(owner(claims, slot) for slot in range(_partitions(claims)))
        until = math.inf if is_whole else self._clock.monotonic() + AWAY_SECONDS
        self._found.put(number, _Found(claims, until))

    def forget(self, number: str) -> None:
        """It is not where it was."""
        self._found.drop(number)

    def forget_all(self) -> None:
        """Nodes have come or gone."""
        self._found.clear()


def _partitions(claims: Claims) -> int:
    return max(claim.partitions for claim in claims.values())


def holder(claims: Claims, slot: int) -> str:
    """The node that has the part of a device that a slot belongs to, empty for none."""
    found: Claim | None = owner(claims, slot)
    return found.node if found is not None else ""
