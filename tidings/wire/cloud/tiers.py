"""Messaging limits of the Cloud API: recipients that a number may reach outside their service window in 24 hours."""

from __future__ import annotations

from collections.abc import Mapping

UNLIMITED = "TIER_UNLIMITED"
# Recipients by name, in ascending order; 0 for no limit.
TIERS: Mapping[str, int] = {
    "TIER_50": 50,
    "TIER_250": 250,
    "TIER_1K": 1_000,
    "TIER_2K": 2_000,
    "TIER_10K": 10_000,
    "TIER_100K": 100_000,
    UNLIMITED: 0,
}
# Steps by which limits rise. `TIER_50` and `TIER_1K` are of an earlier scale.
_NEXT: Mapping[str, str] = {
    "TIER_50": "TIER_250",
    "TIER_250": "TIER_2K",
    "TIER_1K": "TIER_10K",
    "TIER_2K": "TIER_10K",
    "TIER_10K": "TIER_100K",
    "TIER_100K": UNLIMITED,
}


def next_tier(tier: str) -> str:
    """Return the limit that follows another one than `UNLIMITED`."""
    return _NEXT[tier]
