"""Registration status of contacts: found in memory, then in the database, then by one call to the network at a
time.

While a call to the network is in flight, all requested numbers are collected for the next one: those of contacts calls,
and unknown recipients of messages. The next call starts a fifth of the last one's duration after its end, so that
callers who waited for the last one can join it. A positive result is valid for 7 days, a negative one only for minutes,
because the number may register at any time. A number that writes, or has keys, is on the network.

A single shard reads all rows of the database when it is opened. While they fit into memory, a number that is not in
memory is not in the database either, so the database is not queried.

With several shards, each one checks the numbers whose messages belong to it. The first shard checks those of contacts
calls that do not wait, and those of groups. Results for numbers of other shards are shared through the database: such a
check is answered once it is on disk, and negative results are read there each time.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import functools
import logging
import math
from collections.abc import Coroutine, Iterable, Sequence
from typing import Any

from prometheus_client import Counter

from coreapp import partitions
from coreapp.context import ShardContext
from coreapp.errors import RequestRefused
from coreapp.journal.change import Change
from coreapp.peers.contact_calls import ContactCalls, describe
from coreapp.webhook.queue import CallbackAdmission
from tidings.aio import service
from tidings.aio.batcher import Batcher, BatcherFull
from tidings.aio.lru import LRU
from tidings.client.errors import ClientError
from tidings.storage import outages
from tidings.storage.business import contacts
from tidings.wire import codes, core, phone_numbers

log = logging.getLogger(__name__)

LOOKED_UP = Counter("tidings_contacts_looked_up_total", "Numbers looked up, by where they were found", ["source"])

LIFETIME = 7 * 24 * 3600.0  # seconds that a positive result is valid
RETRY_SECONDS = 4.0  # seconds that a caller waits for an unreachable database
CHECK_SECONDS = 4.0  # seconds that a message waits for the check of its recipient
# Seconds that callers wait for a network that sends nothing at all, and seconds between two polls of that.
SILENCE_SECONDS, POLL_SECONDS = 4.0, 0.5
MAX_SYNC = 10_000  # numbers in one call to the network
MAX_WAITING = 200_000  # numbers that wait for a call; callers beyond that get 1016
PAGE = 1000  # contacts per read when the shard is opened
CACHED = 100_000  # contacts
# Time between two calls to the network, as a share of the first one's duration. Clients that call one after the other
# miss each second call without it.
PAUSE_SHARE = 0.2
NOT_VALID = "the recipient is not a valid user"


@dataclasses.dataclass(eq=False, repr=False)
class ContactCache:
    """Cache of which numbers are registered, for one account. Reads from and writes to the shard's database."""

    context: ShardContext
    admission: CallbackAdmission  # admission of callbacks with results of contacts calls

    def __post_init__(self) -> None:
        self._cache: LRU[str, tuple[bool, float]] = LRU(CACHED)
        # Whether all rows of the database have been read.
        self._is_filled = False
        self._reads: Batcher[str, bool | None] = Batcher("contacts-read", self._read, max_size=1000)
        self._syncs: Batcher[str, bool] = Batcher(
            "contacts-sync",
            self._sync,
            max_size=MAX_SYNC,
            max_in_flight=1,
            max_pending=MAX_WAITING,
            pause_share=PAUSE_SHARE,
        )
        # Numbers of the call in flight, without those that were met since it started.
        self._being_looked_up: set[str] = set()
        self.calls = ContactCalls(self.context, self.admission, self._call_network)
        self._background: set[asyncio.Task[None]] = set()

    def fill(self) -> None:
        """Start reading the database in the background."""
        if self.context.lease.shards == 1:
            self._start(self._fill())

    @property
    def is_complete(self) -> bool:
        """Return whether memory has all rows of the database. A full cache may have evicted some."""
        return self._is_filled and not self._cache.is_full

    @property
    def pending(self) -> int:
        """Numbers that wait for the next call to the network."""
        return self._syncs.pending

    async def check(
        self, inputs: Sequence[str], *, wait: bool, force: bool, request_id: str = "", call_id: str = ""
    ) -> list[core.Contact]:
        """Return one result for each input, in order. Raises `RequestRefused` when too many numbers or callbacks wait
        already.

        call_id: as in `ContactCalls.accept`

        wait: wait for the network's result; otherwise unknown numbers are reported to the webhook later
        force: ignore known results
        """
        wa_ids = [phone_numbers.normalise(text) for text in inputs]
        wanted = {wa_id for wa_id in wa_ids if wa_id}
        known = {} if force else await self._find(wanted)
        missing = [wa_id for wa_id in wanted if wa_id not in known]
        LOOKED_UP.labels("cache").inc(len(wanted) - len(missing))
        LOOKED_UP.labels("servers").inc(len(missing))
        if missing and self._syncs.pending + len(missing) > MAX_WAITING:
            raise _too_many()
        if missing and wait:
            known |= await self._call_network(missing)
        elif missing:
            unknown = set(missing)
            waiting = [(text, wa_id) for text, wa_id in zip(inputs, wa_ids, strict=True) if wa_id in unknown]
            self.calls.accept(call_id, waiting, missing, request_id)
        pending = "failed" if wait else "processing"
        return [describe(text, wa_id, known, pending) for text, wa_id in zip(inputs, wa_ids, strict=True)]

    async def find(self, wa_id: str) -> bool | None:
        """Return whether a number is on the network; None where no result is valid. Raises the database's errors."""
        registered = self._cached(wa_id)
        if registered is None:
            (registered,) = await self._look_up([wa_id])
        return registered

    async def is_registered(self, wa_id: str) -> bool:
        """Return whether a number is on the network, which is called if no known result is valid. Raises
        `RequestRefused` with 1016 if that is not possible now.
        """
        registered = await self.find(wa_id)
        if registered is None:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(CHECK_SECONDS):
                    registered = (await self._call_network([wa_id])).get(wa_id)
        if registered is None:
            raise RequestRefused(codes.OVERLOADED, "the recipient cannot be checked now", retry_after=5)
        return registered

    async def require_valid(self, wa_id: str, *, checks: bool = False) -> None:
        """Raise `RequestRefused` unless the number is on the network: 1006 if it was not checked within 7 days, 1013 if
        it is not on the network.

        Where unknown numbers are checked, 1016 replaces 1006 if the check is not possible now.

        checks: whether unknown numbers are checked even if the settings do not say so
        """
        if checks or self.context.settings.check_unknown:
            registered: bool | None = await self.is_registered(wa_id)
        else:
            registered = await self.find(wa_id)
        if registered is None:
            raise RequestRefused(codes.NOT_FOUND, codes.UNKNOWN_CONTACT)
        if not registered:
            raise RequestRefused(codes.INVALID_USER, NOT_VALID)

    def is_checked_without_wait(self, wa_id: str) -> bool:
        """Return whether a contacts call that does not wait has requested this number and has no result yet."""
        return self.calls.is_pending(wa_id)

    def record_registered(self, wa_ids: Iterable[str]) -> Sequence[contacts.StoredContact]:
        """Record that these numbers are on the network, because they wrote or registered new keys. Returns the rows to
        store, for those whose known result is older than half its lifetime.
        """
        now = self.context.clock.now()
        rows = []
        for wa_id in wa_ids:
            self._being_looked_up.discard(wa_id)
            registered, checked_at = self._cache.get(wa_id) or (False, 0.0)
            if not registered or abs(now - checked_at) > LIFETIME / 2:
                self._cache.put(wa_id, (True, now))
                rows.append(contacts.StoredContact(self.context.account, wa_id, True, int(now * 1000)))
        return rows

    def record_unregistered(self, wa_ids: Iterable[str]) -> Sequence[contacts.StoredContact]:
        """Record that these numbers are not on the network now, as after a check that did not find them. Returns the
        rows to store.
        """
        now = self.context.clock.now()
        rows = []
        for wa_id in wa_ids:
            self._cache.put(wa_id, (False, now))
            rows.append(contacts.StoredContact(self.context.account, wa_id, False, int(now * 1000)))
        return rows

    def record_keys(self, wa_id: str, *, has_keys: bool) -> Sequence[contacts.StoredContact]:
        """Record whether the network has keys of a recipient: the result of a check, if none is valid, and the loss of
        its registration. Returns the rows to store.
        """
        if not has_keys:
            return self.record_unregistered((wa_id,))
        return () if self._fresh(wa_id) else self.record_registered((wa_id,))

    async def close(self) -> None:
        """Cancel background work. Contacts calls that do not wait are reported as failed."""
        await self.calls.close()
        await service.cancel(self._background)

    def _cached(self, wa_id: str) -> bool | None:
        entry = self._fresh(wa_id)
        if entry is None or (self.context.lease.shards > 1 and not entry):
            # Another shard may have found it registered since.
            return None
        return entry

    def _fresh(self, wa_id: str) -> bool | None:
        entry = self._cache.get(wa_id)
        return entry[0] if entry is not None and self._is_valid(*entry) else None

    def _is_valid(self, registered: bool, checked_at: float) -> bool:
        """Return whether a result is valid. One that is later than the clock by its lifetime comes from a clock that
        was ahead.

        checked_at: Unix seconds
        """
        return abs(self.context.clock.now() - checked_at) <= self._lifetime(registered)

    def _lifetime(self, registered: bool) -> float:
        """Return the seconds that a result is valid."""
        return LIFETIME if registered else self.context.settings.unregistered_seconds

    async def _find(self, wa_ids: set[str]) -> dict[str, bool]:
        known: dict[str, bool] = {}
        missing = []
        for wa_id in wa_ids:
            registered = self._cached(wa_id)
            if registered is None:
                missing.append(wa_id)
            else:
                known[wa_id] = registered
        for wa_id, found in zip(missing, await self._look_up(missing), strict=True):
            if found is not None:
                known[wa_id] = found
        return known

    async def _look_up(self, wa_ids: Sequence[str]) -> Sequence[bool | None]:
        """Return the stored result of each number, None where there is none. Raises the database's errors."""
        if self.is_complete:
            return [self._fresh(wa_id) for wa_id in wa_ids]
        return await outages.within(RETRY_SECONDS, asyncio.gather(*map(self._reads.put, wa_ids)))

    async def _read(self, wa_ids: Sequence[str]) -> Sequence[bool | None]:
        numbers = list(dict.fromkeys(wa_ids))
        since = self._earliest_checks()
        rows = await self.context.database.query(
            lambda connection: contacts.list_checked(connection, self.context.account, numbers, since=since),
            retry_seconds=RETRY_SECONDS,
        )
        found = {row.wa_id: self._learn(row) for row in rows if self._is_valid(row.registered, row.checked_at / 1000)}
        # Results that are not on disk yet are in memory.
        return [found[wa_id] if wa_id in found else self._fresh(wa_id) for wa_id in wa_ids]

    async def _fill(self) -> None:
        after, since = "", self._earliest_checks()
        while not self._cache.is_full:
            page = functools.partial(
                contacts.list_page, account=self.context.account, after=after, since=since, limit=PAGE
            )
            rows = await self.context.database.query(page, retry_seconds=math.inf)
            for row in rows:
                if self._is_valid(row.registered, row.checked_at / 1000):
                    self._learn(row)
            if len(rows) < PAGE:
                self._is_filled = True
                return
            after = rows[-1].wa_id

    def _earliest_checks(self) -> contacts.EarliestChecks:
        now = self.context.clock.now()
        return contacts.EarliestChecks(
            valid=int((now - self._lifetime(True)) * 1000), invalid=int((now - self._lifetime(False)) * 1000)
        )

    def _learn(self, row: contacts.StoredContact) -> bool:
        """Take a valid row into memory unless memory has a newer result. Returns whether the number is registered."""
        known = self._cache.get(row.wa_id)
        # A check may have ended during the read.
        if known is None or known[1] < row.checked_at / 1000 or not self._is_valid(*known):
            known = (row.registered, row.checked_at / 1000)
            self._cache.put(row.wa_id, known)
        return known[0]

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._background.add(task)
        task.add_done_callback(self._background.discard)

    async def _call_network(self, wa_ids: Sequence[str]) -> dict[str, bool]:
        """Return the network's results. Numbers that could not be checked are omitted."""
        try:
            futures = [self._syncs.put(wa_id) for wa_id in wa_ids]
        except BatcherFull as error:
            raise _too_many() from error
        results = await self._wait(futures)
        for result in results:
            if isinstance(result, BaseException) and not isinstance(result, ClientError):
                raise result
        return {wa_id: result for wa_id, result in zip(wa_ids, results, strict=True) if isinstance(result, bool)}

    async def _wait(self, futures: Sequence[asyncio.Future[bool]]) -> Sequence[bool | BaseException | None]:
        """Return the results, None for those that an unresponsive network has not returned."""
        seconds = SILENCE_SECONDS
        try:
            while (await asyncio.wait(futures, timeout=seconds))[1]:
                # The network has sent nothing for almost the whole time that the callers have waited.
                if self.context.network_connection.silence > SILENCE_SECONDS - POLL_SECONDS:
                    break
                seconds = POLL_SECONDS
        finally:
            for future in futures:
                future.cancel()
        return [None if future.cancelled() else future.exception() or future.result() for future in futures]

    async def _sync(self, wa_ids: Sequence[str]) -> Sequence[bool]:
        numbers = list(dict.fromkeys(wa_ids))
        self._being_looked_up = set(numbers)
        try:
            found = await self.context.network_connection.check_contacts(numbers)
        except ClientError as error:
            log.warning("contacts.not_synced", extra={"numbers": len(numbers), "error": str(error)})
            raise
        # A number that was met during the call may have registered after the network looked it up.
        registered = found | set(numbers) - self._being_looked_up
        now = self.context.clock.now()
        rows = []
        for wa_id in numbers:
            self._cache.put(wa_id, (wa_id in registered, now))
            rows.append(contacts.StoredContact(self.context.account, wa_id, wa_id in registered, int(now * 1000)))
        # Callers need not wait for the commit of a cache entry, unless other shards read it; a result lost in a crash
        # is checked again.
        for_others = any(partitions.shard_of(self.context.lease, wa_id) != self.context.shard for wa_id in numbers)
        committed = self.context.journal.put(Change(self.context.account, checked_contacts=rows), urgent=for_others)
        if for_others:
            await committed
        log.info("contacts.synced", extra={"numbers": len(numbers), "registered": len(registered)})
        return [wa_id in registered for wa_id in wa_ids]


def _too_many() -> RequestRefused:
    return RequestRefused(codes.OVERLOADED, "too many contacts wait for a check", retry_after=5)
