"""Registration locks: registering a locked number again takes a code and the lock's PIN."""

from __future__ import annotations

import asyncio
import dataclasses
import functools
import logging
from collections.abc import Callable, Set

from prometheus_client import Counter

from network.devices.familiar_addresses import DAY_MS, FAMILIAR_MS, FamiliarAddresses
from network.directory.seen_devices import SeenDevices
from network.errors import Locked, RateLimited, TooOften, Unauthorized, Unavailable
from tidings.aio.clock import Clock
from tidings.aio.service import wait_for
from tidings.aio.token_buckets import RateLimit, TokenBuckets
from tidings.secrets.hash_pool import HashPool, HashPoolFull
from tidings.storage import outages
from tidings.storage.database import Connection, Database
from tidings.storage.network import lock_addresses, locks
from tidings.storage.network.locks import Lock, PinBuckets

log = logging.getLogger(__name__)

PINS = Counter("tidings_network_lock_pins_total", "PINs of registration locks that were checked", ["result"])

# Inactivity of the device, in milliseconds, after which its lock expires: the number may have another owner by then.
EXPIRES_MS = 7 * DAY_MS
# Wrong PINs for one number from its familiar addresses together, and likewise from all other addresses together. The
# daily limit lets an owner wait for one day at most, until the yearly limit is reached: 45 + 4 in any year. The classes
# together admit 98: with six digits a guess succeeds with a probability below 1 in 10,000.
DAILY = RateLimit(interval=DAY_MS, burst=5)
YEARLY = RateLimit(interval=90 * DAY_MS, burst=45)
# Hashes computed at a time, and hashes that may wait; each takes about 20 ms. Only clients with the right code cause
# one.
THREADS, MAX_WAITING = 1, 32
# PINs that one device may set at once, and seconds until it may set another.
SETS, SET_SECONDS = 5, 60
_REMEMBERED = 10_000
# Seconds for which the refund of a right PIN's token is retried while the database is unreachable, longer than the
# client's request.
REFUND_RETRY_SECONDS = 600.0

RIGHT, WRONG, REFUSED = "right", "wrong", "refused"
for _result in (RIGHT, WRONG, REFUSED):
    PINS.labels(_result)


class Locks:
    """Locks of all numbers, in the database, so that all nodes count wrong PINs together.

    Wrong PINs from familiar addresses and those from others are counted apart, so that guesses from elsewhere do not
    refuse the owner's PIN.
    """

    def __init__(self, database: Database, clock: Clock, addresses: FamiliarAddresses) -> None:
        self._database = database
        self._clock = clock
        self._addresses = addresses
        self._pool = HashPool(threads=THREADS, max_waiting=MAX_WAITING)
        self._pin_sets: TokenBuckets[str] = TokenBuckets(
            clock, rate=1 / SET_SECONDS, burst=SETS, remembered=_REMEMBERED
        )
        # Refunds in progress.
        self._refunds: set[asyncio.Task[None]] = set()

    async def open(self, number: str, pin: str, origin: str) -> str:
        """Check that a registration by code may replace the current one; return the hash of the lock that the PIN
        opened.

        Returns an empty string when no lock is in force. Raises `Locked` without a PIN, `Unauthorized` for a wrong one,
        `RateLimited` after too many wrong ones, and `Unavailable`.

        origin: key of the client's address.
        """
        now = self._clock.now_ms()

        async def read(connection: Connection) -> tuple[Lock | None, bool]:
            found = await locks.find(connection, number)
            return found, found is not None and await self._addresses.includes(connection, number, origin, now)

        found, familiar = await self._database.query(read, retry_seconds=20)
        if found is None or is_expired(found, now):
            return ""
        if not pin:
            raise Locked("the number has a registration lock: send its PIN")
        await self._count_as_wrong(number, familiar=familiar)
        try:
            is_right = await self._pool.verify(found.pin_hash, pin)
        except HashPoolFull:
            await self._refund(number, familiar=familiar)
            raise _too_busy() from None
        if not is_right:
            PINS.labels(WRONG).inc()
            log.warning("lock.wrong_pin", extra={"number": number, "familiar_address": familiar})
            raise Unauthorized("the PIN of the registration lock is wrong", reason="wrong_pin")
        PINS.labels(RIGHT).inc()
        await self._refund(number, familiar=familiar)
        return found.pin_hash

    async def hash(self, pin: str) -> str:
        """Return the hash of a PIN for storage. Raises `Unavailable`."""
        try:
            return await self._pool.hash(pin)
        except HashPoolFull:
            raise _too_busy() from None

    async def set(self, number: str, pin: str) -> None:
        """Lock a number at its device's request, and fill its daily buckets. Raises `TooOften` and `Unavailable`.

        Wrong PINs stay counted in the yearly buckets, whose sum bounds the guesses of a year.
        """
        wait = self._pin_sets.take(number)
        if wait:
            raise TooOften("the PIN was set too often", retry_after=1 + int(wait))
        stored, now = await self.hash(pin), self._clock.now_ms()
        await self._database.persist(lambda c: locks.put(c, number, stored, now, refill=True), retry_seconds=20)
        log.info("lock.set", extra={"number": number})

    async def remove(self, number: str) -> None:
        """Unlock a number at its device's request."""
        await self._database.persist(lambda connection: locks.delete(connection, number), retry_seconds=20)
        log.info("lock.removed", extra={"number": number})

    async def _count_as_wrong(self, number: str, *, familiar: bool) -> None:
        """Count a PIN as wrong before it is checked, so that every checked PIN is counted. Raises `RateLimited`."""
        now = self._clock.now_ms()

        async def work(connection: Connection) -> int:
            found = await locks.find(connection, number, lock=True)
            if found is None:
                return 0
            stored = found.buckets(familiar=familiar)
            daily, yearly = DAILY.bound(stored.daily_full_at, now), YEARLY.bound(stored.yearly_full_at, now)
            wait = max(DAILY.wait(daily, now), YEARLY.wait(yearly, now))
            if not wait:
                left = PinBuckets(DAILY.consume(daily, now), YEARLY.consume(yearly, now))
                await locks.write_buckets(connection, number, left, familiar=familiar)
            return wait

        # At most one commit: a repeated one would count the PIN twice.
        wait = await self._database.commit(work, retry_seconds=20)
        if wait:
            PINS.labels(REFUSED).inc()
            raise RateLimited("too many wrong PINs were tried for this number", retry_after=-(-wait // 1000))

    async def _refund(self, number: str, *, familiar: bool) -> None:
        """Undo `_count_as_wrong` for a PIN that was not wrong, also when the request ends in the meantime."""
        refund = asyncio.get_running_loop().create_task(self._persist_refund(number, familiar), name="refund")
        self._refunds.add(refund)
        refund.add_done_callback(self._refunds.discard)
        await asyncio.shield(refund)

    async def _persist_refund(self, number: str, familiar: bool) -> None:
        now = self._clock.now_ms()
        # Buckets that an earlier attempt has read.
        before: PinBuckets | None = None

        async def work(connection: Connection) -> None:
            nonlocal before
            found = await locks.find(connection, number, lock=True)
            if found is None:
                return
            stored = found.buckets(familiar=familiar)
            # If they have changed, the earlier attempt may have committed. A refund made twice would grant a free try.
            if before is None or stored == before:
                before = stored
                left = PinBuckets(
                    DAILY.consume(stored.daily_full_at, now, -1), YEARLY.consume(stored.yearly_full_at, now, -1)
                )
                await locks.write_buckets(connection, number, left, familiar=familiar)

        await self._database.persist(work, retry_seconds=REFUND_RETRY_SECONDS)


def is_expired(lock: Lock, now: int) -> bool:
    """Return whether the lock has expired because its device was inactive for too long.

    now: Unix milliseconds.
    """
    return now >= lock.active_at + EXPIRES_MS


def _too_busy() -> Unavailable:
    return Unavailable("too many PINs are being checked", retry_after=1)


INTERVAL = 60.0  # seconds between two passes
# Milliseconds between two recorded activities of one device.
RECORD_INTERVAL_MS = 3600 * 1000
PAGE = 1000  # Locks per query.
RETRY_SECONDS = 5.0  # seconds for each statement while the database is unreachable
# Milliseconds that expired locks are kept, in case a wrong clock expired them.
KEPT_MS = 30 * 24 * 3600 * 1000


@dataclasses.dataclass(slots=True, eq=False)
class LockActivity:
    """Service that records which locked devices are active, and their addresses, once a minute.

    A device is active while it is attached to this node, and when it authenticates by its token.
    """

    name = "lock-activity"

    database: Database
    clock: Clock
    addresses: FamiliarAddresses
    # Numbers that have authenticated, with the origins of those calls.
    seen: SeenDevices
    # Returns the origins from which the device of a number is attached to this node; `None` when it is not.
    origins_of: Callable[[str], Set[str] | None]
    _delete_at: int = 0  # Unix milliseconds.

    async def run(self, stop: asyncio.Event) -> None:
        is_last = False
        while not is_last:
            is_last = await wait_for(stop, INTERVAL)
            try:
                await self.run_once()
            except Exception as error:
                if not outages.is_outage(error):
                    raise
                log.warning("locks.not_noted", extra={"error": outages.brief(error)})

    async def run_once(self) -> int:
        """Record which locked devices were active, and from where; return their number."""
        now, total = self.clock.now_ms(), 0
        seen = self.seen.take()
        after, until = (now - EXPIRES_MS, ""), now - RECORD_INTERVAL_MS
        while True:
            listing = functools.partial(locks.list_idle, after=after, until=until, limit=PAGE)
            page = await self.database.query(listing, retry_seconds=RETRY_SECONDS)
            attached = {number for _, number in page if self.origins_of(number) is not None}
            active = [number for _, number in page if number in seen or number in attached]
            if active:
                noting = functools.partial(locks.note_active, numbers=active, now=now)
                await self.database.persist(noting, retry_seconds=RETRY_SECONDS)
            # An attached device is seen about once an hour.
            await self.addresses.record(attached, lambda number: self.origins_of(number) or (), now)
            total += len(active)
            if len(page) < PAGE:
                break
            after = page[-1]
        await self.addresses.record(seen, lambda number: seen.get(number, ()), now)
        self.seen.recorded()
        if now >= self._delete_at:
            await self._delete_expired(now)
            self._delete_at = now + RECORD_INTERVAL_MS
        return total

    async def _delete_expired(self, now: int) -> None:
        before = now - EXPIRES_MS - KEPT_MS
        await self.database.persist(lambda c: locks.delete_expired(c, before), retry_seconds=RETRY_SECONDS)
        await self.database.persist(
            lambda c: lock_addresses.delete_old(c, now - FAMILIAR_MS), retry_seconds=RETRY_SECONDS
        )
