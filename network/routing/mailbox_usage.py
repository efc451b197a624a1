"""Usage of mailboxes against their quotas: counted in the database when first needed, and updated in memory since."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Iterable, Sequence

from prometheus_client import Gauge

from network.routing.mailbox import SqlMailbox
from network.routing.quotas import MailboxUsage, QuotaCheck, QuotaRefusal, SenderUsage, SenderUsageCount, refused
from network.settings import Quotas
from tidings.aio.batcher import Batcher
from tidings.aio.clock import Clock
from tidings.aio.token_buckets import TokenBuckets
from tidings.storage.network.mailbox import WaitingEnvelopes
from tidings.wire import device

SENDER_USAGES = Gauge("tidings_network_mailbox_shares", "Counters in memory of senders' shares of mailboxes")

# Mailboxes remembered, about 300 bytes each, and pairs of sender and mailbox, about 250 bytes each.
REMEMBERED = 100_000
MAX_SENDER_USAGES = 200_000
# Seconds for which a count may be the reason of a refusal. Removals during a count may be missed by it, so a mailbox
# that seems full is counted again.
COUNT_SECONDS = 60.0
# The same when other nodes deliver from the mailbox too.
SHARED_COUNT_SECONDS = 2.0
COUNT_AGAIN = QuotaRefusal("", "", 0)
# Senders whose stored bytes are remembered, about 200 bytes each.
SENDERS = 20_000
# Longest retry time in seconds of a sender with too much stored: its recipients may have connected by then.
LONGEST = 60.0


class StoredBytes:
    """Bytes that each sender has stored for recipients who have not fetched them, in all mailboxes.

    The quotas of mailboxes bound one sender's usage of one mailbox. This bounds the number of mailboxes that it can
    fill. Bytes count until the recipient fetches them or the bucket's rate has refilled them. They are counted when
    they are stored, not when they are sent, so envelopes to connected devices cost nothing. Envelopes that are being
    stored may exceed the limit.
    """

    def __init__(self, quotas: Quotas, clock: Clock, weight_of: Callable[[str], int]) -> None:
        """weight_of: return the factor by which a number's limit is multiplied."""
        self._weight_of = weight_of
        self._buckets: TokenBuckets[str] = TokenBuckets(
            clock, rate=quotas.stored_rate, burst=quotas.stored_bytes, remembered=SENDERS
        )
        # Senders whose bucket was exhausted when bytes were stored; `refusal_of` checks again.
        self.empty: dict[str, None] = {}

    def add(self, sender: str, size: int) -> None:
        """Count `size` stored bytes."""
        self._buckets.add(sender, size / self._weight_of(sender))
        if self._buckets.wait(sender):
            if len(self.empty) >= SENDERS:
                self.empty.clear()
            self.empty[sender] = None

    def remove(self, sender: str, size: int) -> None:
        """Refund `size` bytes that the recipient has fetched."""
        self._buckets.add(sender, -size / self._weight_of(sender))

    def refusal_of(self, sender: str) -> QuotaRefusal | None:
        """Return the refusal of the next envelope of a sender in `empty`; `None` when it may pass again."""
        wait = min(self._buckets.wait(sender), LONGEST)
        if wait:
            detail = "too many bytes of this sender are stored for recipients"
            return QuotaRefusal(device.RATE_LIMITED, detail, math.ceil(wait))
        self.empty.pop(sender, None)
        return None


class MailboxUsages:
    """Usage of mailboxes by recipient. Those counted first are dropped first, and counted again when needed.

    get: return the cached usage of a recipient's mailbox; `None` when it is not cached.
    quota_check: decisions by the quotas.
    stored: bytes in the database, by sender.
    """

    def __init__(
        self, store: SqlMailbox, quotas: Quotas, clock: Clock, *, weight_of: Callable[[str], int] = lambda number: 1
    ) -> None:
        """weight_of: return the factor by which a sender's limit on stored bytes is multiplied."""
        self.stored = StoredBytes(quotas, clock, weight_of)
        # Whether other nodes store, deliver and remove too, so that a count is soon outdated.
        self.is_shared = False
        self._store = store
        self.quota_check = QuotaCheck(quotas)
        self._clock = clock
        self._total = SenderUsageCount()
        self._known: dict[str, MailboxUsage] = {}
        self.get: Callable[[str], MailboxUsage | None] = self._known.get
        self._counting: Batcher[str, MailboxUsage] = Batcher("usage", self._flush, max_in_flight=2)

    def look_up(self, recipient: str) -> asyncio.Future[MailboxUsage]:
        """Count the mailbox of a recipient. Raises `BatcherFull`."""
        return self._counting.put(recipient)

    def take(self, usage: MailboxUsage, frame: device.Send, size: int, now: float) -> QuotaRefusal | None:
        """Count one envelope as waiting; return a refusal instead when a quota or rate limit is exceeded.

        Returns `COUNT_AGAIN` when the count is too old for a refusal: look it up again.

        size: bytes.
        now: monotonic seconds.
        """
        sender_usage = usage.by_sender.get(frame.sender) or usage.of_sender(frame.sender, now)
        if self.stored.empty and frame.sender in self.stored.empty:
            refusal = self.refuse_stored(sender_usage, frame, now)
            if refusal is not None:
                return refusal
        if self.quota_check.passes(usage, sender_usage, size, now):
            return None
        refusal = self.quota_check.check_rate(sender_usage, frame.id, now)
        if refusal is not None:
            return refusal
        if not self.quota_check.has_room(usage, sender_usage, size):
            if now - usage.counted_at < (SHARED_COUNT_SECONDS if self.is_shared else COUNT_SECONDS):
                return self.quota_check.full(sender_usage, frame.id, now)
            if self._known.get(frame.to) is usage:
                self._evict(frame.to)
            return COUNT_AGAIN
        self.quota_check.passed(sender_usage, now)
        usage.add(sender_usage, size)
        return None

    def refuse_stored(self, sender_usage: SenderUsage, frame: device.Send, now: float) -> QuotaRefusal | None:
        """Return the refusal of a sender with too much stored, whose first refused envelope keeps its position."""
        refusal = self.stored.refusal_of(frame.sender)
        if refusal is None:
            return None
        return self.quota_check.check_rate(sender_usage, frame.id, now) or refused(sender_usage, frame.id, refusal, now)

    def take_copy(self, usage: MailboxUsage, sender: str, size: int, now: float) -> bool:
        """Count one group copy as waiting if there is room, without the rate limit; return whether there was.

        size: bytes.
        now: monotonic seconds.
        """
        sender_usage = usage.by_sender.get(sender) or usage.of_sender(sender, now)
        if not self.quota_check.has_room(usage, sender_usage, size):
            return False
        usage.add(sender_usage, size)
        return True

    def has_room(self, usage: MailboxUsage, sender: str, size: int) -> bool:
        """Return whether a mailbox has room for `size` more bytes of this sender."""
        return self.quota_check.has_room(usage, usage.of_sender(sender, self._clock.monotonic()), size)

    def needs_recount(self, usage: MailboxUsage, sender: str, size: int) -> bool:
        """Return whether a mailbox seems to have no room, by a count that is too old for a refusal."""
        now = self._clock.monotonic()
        return now - usage.counted_at >= SHARED_COUNT_SECONDS and not self.has_room(usage, sender, size)

    def evict(self, recipient: str) -> None:
        """Drop the usage of a recipient, which is counted again when needed."""
        if recipient in self._known:
            self._evict(recipient)

    def add(self, recipient: str, sender: str, size: int) -> None:
        """Count `size` bytes that another transaction has stored."""
        self.note_stored(sender, size)
        usage = self._known.get(recipient)
        if usage is not None:
            usage.add(usage.of_sender(sender, self._clock.monotonic()), size)

    def note_stored(self, sender: str, size: int) -> None:
        """Count as stored `size` bytes that are counted as waiting already."""
        if not self.is_shared:
            # This node would not notice when another node delivers them.
            self.stored.add(sender, size)

    def learn(self, recipient: str, waiting: Iterable[WaitingEnvelopes]) -> MailboxUsage:
        """Record the counts of a mailbox; return its usage. A usage that is in memory already stays unchanged."""
        usage = self._known.get(recipient)
        if usage is None:
            usage = MailboxUsage(self._total, self._clock.monotonic())
            for entry in waiting:
                usage.put(entry.sender, entry.envelopes, entry.size)
            self._known[recipient] = usage
            self.trim()
        return usage

    def remove(self, recipient: str, sender: str, size: int) -> None:
        """Count an envelope of this sender as no longer waiting."""
        usage = self._known.get(recipient)
        if usage is not None:
            usage.remove(sender, size)

    def trim(self) -> None:
        """Drop the oldest usages while there are too many, or too many pairs of sender and mailbox."""
        while len(self._known) > REMEMBERED or (self._total.count > MAX_SENDER_USAGES and len(self._known) > 1):
            self._evict(next(iter(self._known)))
        SENDER_USAGES.set(self._total.count)

    def _evict(self, recipient: str) -> None:
        self._total.count -= len(self._known.pop(recipient).by_sender)

    async def _flush(self, recipients: Sequence[str]) -> Sequence[MailboxUsage]:
        found = await self._store.count(list(dict.fromkeys(recipients)))
        return [self.learn(recipient, found.get(recipient, ())) for recipient in recipients]
