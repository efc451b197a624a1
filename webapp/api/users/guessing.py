"""Limits on password checks by token buckets, which are consumed before anything is hashed.

An address is familiar if that user has logged in from it before. Checks from unfamiliar addresses consume a token of
three buckets: of the account and of the address, both in the database for all Webapps, and of all unfamiliar addresses
of this Webapp, which bounds its CPU time. Familiar addresses have separate buckets, which checks from others cannot
exhaust.
"""

from __future__ import annotations

import dataclasses
import hashlib
import logging
from collections.abc import Mapping

from prometheus_client import Counter

from tidings.aio.clock import Clock
from tidings.aio.lru import LRU
from tidings.aio.token_buckets import TokenBuckets
from tidings.net.unauthenticated import key_of
from tidings.storage import outages
from tidings.storage.business import login_buckets, login_origins
from tidings.storage.business.login_origins import LoginOrigin
from tidings.storage.database import Connection, Database, DatabaseError
from webapp.http.errors import DatabaseUnavailable, RateLimitExceeded
from webapp.rate_limits import buckets

log = logging.getLogger(__name__)


@dataclasses.dataclass(frozen=True, slots=True)
class Rate:
    """Rate of a token bucket."""

    per_second: float  # tokens gained per second
    burst: float  # tokens that a bucket holds

    @property
    def interval(self) -> float:
        """Return the seconds in which a bucket gains one token."""
        return 1 / self.per_second

    @property
    def filling(self) -> float:
        """Return the seconds in which an empty bucket fills."""
        return self.burst / self.per_second

    def buckets(self, clock: Clock, remembered: int) -> TokenBuckets[str]:
        """Create buckets of this rate."""
        return TokenBuckets(clock, rate=self.per_second, burst=self.burst, remembered=remembered)


# Clients at unfamiliar addresses, per account and per address.
UNFAMILIAR = Rate(per_second=0.1, burst=10)
# All clients at unfamiliar addresses of one Webapp. A check costs 28 to 45 ms of CPU time, so this is 1 % of a core.
# The other 4 % are for the requests themselves.
ALL_UNFAMILIAR = Rate(per_second=0.25, burst=3)
# One user from one familiar address, and all familiar clients of one Webapp, whose checks arrive together at its start.
FAMILIAR = Rate(per_second=1, burst=20)
ALL_FAMILIAR = Rate(per_second=10, burst=200)

# Seconds after a login for which an address is familiar, and seconds after a recorded login in which further ones are
# not recorded.
REMEMBERED = 90 * 24 * 3600
_REFRESH = 24 * 3600
# Maximum number of familiar addresses, and of buckets of each kind, in memory.
LIMIT = 10_000
_SWEEP = 1_000

LIMITED = Counter(
    "tidings_logins_limited_total", "Logins refused without a password check, by exhausted rate limit", ["by"]
)

# Created at 0, so that the first refusal appears as an increase.
for _by in ("account", "address", "unauthenticated", "client", "clients"):
    LIMITED.labels(_by)

_ALL = "all"


class Guessing:
    """Buckets and familiar addresses of one Webapp: the `LIMIT` most recent of each."""

    def __init__(self, database: Database, clock: Clock) -> None:
        self._database = database
        self._clock = clock
        # Lower bounds of the waits at the database's buckets, so that refusals of a flood cost no statement each.
        self._accounts = UNFAMILIAR.buckets(clock, LIMIT)
        self._addresses = UNFAMILIAR.buckets(clock, LIMIT)
        self._unauthenticated = ALL_UNFAMILIAR.buckets(clock, 1)
        self._clients = FAMILIAR.buckets(clock, LIMIT)
        self._all_familiar = ALL_FAMILIAR.buckets(clock, 1)
        # User and origin, mapped to the time of the last recorded login, Unix milliseconds.
        self._familiar: LRU[tuple[str, str], int] = LRU(LIMIT)
        self._polled_at = 0

    def is_familiar(self, username: str, address: str) -> bool:
        """Return whether this user has logged in from this address."""
        seen_at = self._familiar.get((username, key_of(address)))
        return seen_at is not None and self._clock.now_ms() < seen_at + REMEMBERED * 1000

    async def admit(self, username: str, address: str) -> None:
        """Consume tokens for a check of this user's password. Raises `RateLimitExceeded`, and the database's errors."""
        origin = key_of(address)
        if self.is_familiar(username, address):
            client = f"{origin} {username}"
            _require({"client": self._clients.wait(client), "clients": self._all_familiar.wait(_ALL)})
            self._clients.add(client)
            self._all_familiar.add(_ALL)
            return
        waits = {
            "account": self._accounts.wait(username),
            "address": self._addresses.wait(origin),
            "unauthenticated": self._unauthenticated.wait(_ALL),
        }
        _require(waits)
        self._accounts.add(username)
        self._addresses.add(origin)
        self._unauthenticated.add(_ALL)
        await self._take_shared(username, origin)

    async def succeeded(self, username: str, address: str) -> None:
        """Record a successful login, which makes the address familiar."""
        now = self._clock.now_ms()
        client = (username, key_of(address))
        if now - (self._familiar.get(client) or 0) < _REFRESH * 1000:
            return
        self._familiar.put(client, now)
        origin = LoginOrigin(*client, now)
        try:
            await self._database.persist(lambda connection: login_origins.save(connection, origin), retry_seconds=1.0)
        except (DatabaseError, OSError) as error:
            # The login is valid anyway. The next one from this address will be recorded.
            self._familiar.pop(client)
            log.warning("login.origin_not_saved", extra={"error": repr(error)[:200]})

    async def poll(self) -> None:
        """Read the logins through other Webapps since the last poll. The first poll reads all of them."""
        started = self._clock.now_ms()
        since = max(self._polled_at - login_buckets.SKEW, started - REMEMBERED * 1000)
        async with self._database.reading() as connection:
            found = await login_origins.list_since(connection, since, limit=LIMIT)
        for origin in reversed(found):
            self._familiar.put((origin.username, origin.origin), origin.seen_at)
        self._polled_at = started

    async def sweep(self) -> int:
        """Delete full buckets and addresses without recent logins. Returns the number of deleted rows."""
        now = self._clock.now_ms()

        async def work(connection: Connection) -> int:
            buckets = await login_buckets.delete_full(connection, now, limit=_SWEEP)
            return buckets + await login_origins.delete_old(connection, now - REMEMBERED * 1000, keep=LIMIT)

        return await self._database.commit(work)

    async def _take_shared(self, username: str, origin: str) -> None:
        # The given name may be a password and have any length, so its hash is stored.
        account = f"account {hashlib.sha256(username.encode()).hexdigest()[:40]}"
        address = f"address {origin}"[:64]
        interval, filling = round(UNFAMILIAR.interval * 1000), round(UNFAMILIAR.filling * 1000)
        now = self._clock.now_ms()

        async def take(connection: Connection) -> Mapping[str, int]:
            return await login_buckets.take(connection, [account, address], now, interval=interval, filling=filling)

        try:
            full_at = await self._database.commit(take, retry_seconds=4.0)
        except Exception as error:
            if not outages.may_be_committed(error):
                raise
            # A repetition would consume a second token. The password was not checked.
            raise DatabaseUnavailable from error
        if full_at:
            # Later attempts are refused here until then, without a statement.
            self._accounts.learn(username, (full_at.get(account, 0) - now) / 1000)
            self._addresses.learn(origin, (full_at.get(address, 0) - now) / 1000)
            raise _refusal({"account": self._accounts.wait(username), "address": self._addresses.wait(origin)})


def _require(waits: dict[str, float]) -> None:
    if any(waits.values()):
        raise _refusal(waits)


def _refusal(waits: dict[str, float]) -> RateLimitExceeded:
    by = max(waits, key=waits.__getitem__)
    LIMITED.labels(by).inc()
    return RateLimitExceeded(
        "too many login attempts for this user, from this address or in total",
        retry_after=buckets.retry_after(waits[by]),
    )
