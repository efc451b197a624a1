"""Who may have a password checked: token buckets, counted before anything is hashed.

A check is a stranger's or that of a familiar client: of an address from which that user has logged in before.
Strangers share a bucket for each account, one for each address (both in the database, the same for all Webapps) and
one for all of them at this Webapp, which bounds its CPU. Familiar clients have buckets of their own, which strangers
cannot empty.
"""

from __future__ import annotations

import dataclasses
import hashlib
import logging

from prometheus_client import Counter

from tidings.runtime.clock import Clock
from tidings.runtime.lru import LRU
from tidings.runtime.strangers import key_of
from tidings.runtime.token_buckets import TokenBuckets
from tidings.storage.business import login_buckets, login_origins
from tidings.storage.business.login_origins import Origin
from tidings.storage.database import Connection, Database, DatabaseError
from webapp.errors import RateLimitExceeded
from webapp.rate_limits import buckets

log = logging.getLogger(__name__)


@dataclasses.dataclass(frozen=True, slots=True)
class Rate:
    """per_second: tokens that a bucket gains; burst: tokens that it holds."""

    per_second: float
    burst: float

    @property
    def interval(self) -> float:
        """Seconds for one token."""
        return 1 / self.per_second

    @property
    def filling(self) -> float:
        """Seconds from an empty bucket to a full one."""
        return self.burst / self.per_second

    def buckets(self, clock: Clock, remembered: int) -> TokenBuckets[str]:
        """Buckets of this rate."""
        return TokenBuckets(clock, rate=self.per_second, burst=self.burst, remembered=remembered)


# Strangers: of one account, or of one address.
STRANGER = Rate(per_second=0.1, burst=10)
# All strangers at one Webapp. A check is 28 to 45 ms of CPU, so this is 1 % of a core; the other 4 % are for the
# requests themselves.
STRANGERS = Rate(per_second=0.25, burst=3)
# One user from one familiar address; and all familiar clients of one Webapp, whose checks come together when it starts.
FAMILIAR = Rate(per_second=1, burst=20)
ALL_FAMILIAR = Rate(per_second=10, burst=200)

# An address is familiar for so many seconds after a login; logins within `_REFRESH` of the one that is noted are not.
REMEMBERED = 90 * 24 * 3600
_REFRESH = 24 * 3600
# Of familiar addresses, and of buckets of each kind in memory.
LIMIT = 10_000
_SWEEP = 1_000

LIMITED = Counter(
    "tidings_logins_limited_total", "Passwords that were not checked, by the bucket that was empty", ["by"]
)

# There from the start, at 0: a first refusal is seen as one more.
for _by in ("account", "address", "strangers", "client", "clients"):
    LIMITED.labels(_by)

_ALL = "all"


class Guessing:
    """Buckets and familiar addresses of one Webapp. It knows the `LIMIT` latest of each."""

    def __init__(self, database: Database, clock: Clock) -> None:
        self._database = database
        self._clock = clock
        # What the database's buckets cannot have less of: a flood costs no statement each.
        self._accounts = STRANGER.buckets(clock, LIMIT)
        self._addresses = STRANGER.buckets(clock, LIMIT)
        self._strangers = STRANGERS.buckets(clock, 1)
        self._clients = FAMILIAR.buckets(clock, LIMIT)
        self._all_familiar = ALL_FAMILIAR.buckets(clock, 1)
        # User and origin, to the Unix milliseconds at which a login was noted.
        self._familiar: LRU[tuple[str, str], int] = LRU(LIMIT)
        self._polled_at = 0

    def is_familiar(self, username: str, address: str) -> bool:
        """Has this user logged in from this address?"""
        seen_at = self._familiar.get((username, key_of(address)))
        return seen_at is not None and self._milliseconds() < seen_at + REMEMBERED * 1000

    async def admit(self, username: str, address: str) -> None:
        """A password of this user will be checked. Raises `RateLimitExceeded`, and the database's errors."""
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
            "strangers": self._strangers.wait(_ALL),
        }
        _require(waits)
        self._accounts.add(username)
        self._addresses.add(origin)
        self._strangers.add(_ALL)
        await self._take_shared(username, origin)

    async def succeeded(self, username: str, address: str) -> None:
        """The password was right: from now on the address is familiar."""
        now = self._milliseconds()
        client = (username, key_of(address))
        if now - (self._familiar.get(client) or 0) < _REFRESH * 1000:
            return
        self._familiar.put(client, now)
        origin = Origin(*client, now)
        try:
            await self._database.persist(lambda connection: login_origins.save(connection, origin), patience=1.0)
        except (DatabaseError, OSError) as error:
            # The login is good all the same; the next one from there is noted.
            self._familiar.drop(client)
            log.warning("login.origin_not_saved", extra={"error": repr(error)[:200]})

    async def poll(self) -> None:
        """Learn from where users logged in through other Webapps; everything at the first time."""
        started = self._milliseconds()
        since = max(self._polled_at - login_buckets.SKEW, started - REMEMBERED * 1000)
        async with self._database.reading() as connection:
            found = await login_origins.list_since(connection, since, limit=LIMIT)
        for origin in reversed(found):
            self._familiar.put((origin.username, origin.origin), origin.seen_at)
        self._polled_at = started

    async def sweep(self) -> int:
        """Forget buckets that are full and addresses that nobody logs in from; returns how many."""
        now = self._milliseconds()

        async def work(connection: Connection) -> int:
            buckets = await login_buckets.delete_full(connection, now, limit=_SWEEP)
            return buckets + await login_origins.delete_old(connection, now - REMEMBERED * 1000, keep=LIMIT)

        return await self._database.commit(work)

    async def _take_shared(self, username: str, origin: str) -> None:
        # A name as it was given may be a password, and of any length.
        account = f"account {hashlib.sha256(username.encode()).hexdigest()[:40]}"
        address = f"address {origin}"[:64]
        interval, filling = round(STRANGER.interval * 1000), round(STRANGER.filling * 1000)
        now = self._milliseconds()
        full_at = await self._database.persist(
            lambda connection: login_buckets.take(
                connection, [account, address], now, interval=interval, filling=filling
            ),
            patience=4.0,
        )
        if full_at:
            # Refused here until then, without a statement.
            self._accounts.learn(username, (full_at.get(account, 0) - now) / 1000)
            self._addresses.learn(origin, (full_at.get(address, 0) - now) / 1000)
            raise _refusal({"account": self._accounts.wait(username), "address": self._addresses.wait(origin)})

    def _milliseconds(self) -> int:
        return int(self._clock.now() * 1000)


def _require(waits: dict[str, float]) -> None:
    if any(waits.values()):
        raise _refusal(waits)


def _refusal(waits: dict[str, float]) -> RateLimitExceeded:
    by = max(waits, key=waits.__getitem__)
    LIMITED.labels(by).inc()
    return RateLimitExceeded(
        "too many passwords are tried for this user, from this address or in all",
        retry_after=buckets.retry_after(waits[by]),
    )
