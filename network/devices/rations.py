"""Rations of registration codes: how many may be asked for, and guessed at, from one address and from all."""

from __future__ import annotations

import math

from prometheus_client import Counter

from network.errors import TooMany
from tidings.runtime.clock import Clock
from tidings.runtime.strangers import ADDRESS, Bounds, Network, Refusal, Strangers

REFUSED = Counter(
    "tidings_network_codes_refused_total", "Requests for codes, and tries of codes, that were refused", ["what", "why"]
)

# Codes that are asked for: at once from one address, and then one in so many seconds; the same from all.
CODES_EACH, SECONDS_EACH = 20, 30
CODES_ALL, SECONDS_ALL = 100, 1
# Tries of a code that are wrong.
TRIES_EACH, TRY_SECONDS_EACH = 10, 60
TRIES_ALL, TRY_SECONDS_ALL = 200, 10


class Rations:
    """Counted before the database is asked, in memory: a restart fills them again. What a number may have on top of
    that is kept with its code."""

    def __init__(self, clock: Clock, trusted: tuple[Network, ...] = ()) -> None:
        """trusted: proxies that speak for others."""
        self._codes = _table(clock, trusted, CODES_EACH, SECONDS_EACH, CODES_ALL, SECONDS_ALL)
        self._tries = _table(clock, trusted, TRIES_EACH, TRY_SECONDS_EACH, TRIES_ALL, TRY_SECONDS_ALL)

    def address_of(self, peer: str, forwarded: str | None) -> str:
        """Who asks: the peer, or whom a trusted proxy names in `X-Forwarded-For`."""
        return self._codes.speaks_for(peer, forwarded.encode("latin-1", "replace") if forwarded else None)

    def take_code(self, address: str) -> None:
        """One code. Raises `TooMany`."""
        _refuse("code", self._codes.take(address))

    def take_try(self, address: str) -> None:
        """One try of a code. Raises `TooMany`."""
        _refuse("try", self._tries.take(address))

    def was_right(self, address: str) -> None:
        """The try was none of the wrong ones."""
        self._tries.give_back(address)


def _table(
    clock: Clock, trusted: tuple[Network, ...], each: int, each_seconds: int, of_all: int, all_seconds: int
) -> Strangers:
    return Strangers(
        clock,
        each=Bounds(connections=0, rate=1 / each_seconds, burst=each),
        together=Bounds(connections=0, rate=1 / all_seconds, burst=of_all),
        trusted=trusted,
    )


def _refuse(what: str, refusal: Refusal | None) -> None:
    if refusal is not None:
        REFUSED.labels(what, refusal.reason).inc()
        whose = "this address" if refusal.reason == ADDRESS else "everybody together"
        kind = "codes" if what == "code" else "tries of codes"
        raise TooMany(f"too many {kind} for {whose}", retry_after=math.ceil(refusal.retry_after))
