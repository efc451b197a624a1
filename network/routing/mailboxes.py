"""Mailboxes under their quotas: what waits in each, counted when it is first needed, and kept up in memory since."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Protocol

from prometheus_client import Gauge

from network.routing.quotas import Judge, Refusal, Share, Total, Usage, refused
from network.routing.stored_bytes import StoredBytes
from network.settings import Quotas
from tidings.runtime.batcher import Batcher
from tidings.runtime.clock import Clock
from tidings.storage.network.mailbox import Waiting
from tidings.wire import device

SHARES = Gauge("tidings_network_mailbox_shares", "Senders' shares of mailboxes that are counted in memory")

# Mailboxes remembered, about 300 bytes each, and senders' shares of all of them, about 250 bytes each.
REMEMBERED = 100_000
MAX_SHARES = 200_000
# Seconds for which a count can be the reason to refuse something. What is removed while the mailbox is being counted
# may be counted for good, so that one which seems full is looked into again.
COUNT_SECONDS = 60.0
# The same where other nodes deliver from the mailbox too.
SHARED_COUNT_SECONDS = 2.0
COUNT_AGAIN = Refusal("", "", 0)


class MailboxCounts(Protocol):
    """Where mailboxes are counted."""

    async def count(self, recipients: Sequence[str]) -> Mapping[str, Sequence[Waiting]]:
        """What waits for each of these, by sender."""
        ...


class Mailboxes:
    """Usage of mailboxes by recipient. Those counted first are forgotten first, and counted again.

    get: the usage of a recipient's mailbox from memory; `None` is no answer here.
    stored: what of it is in the database, by its sender.
    """

    def __init__(
        self, store: MailboxCounts, quotas: Quotas, clock: Clock, *, weight_of: Callable[[str], int] = lambda number: 1
    ) -> None:
        """weight_of(): how many times as much of all mailboxes together a sender may have."""
        self.stored = StoredBytes(quotas, clock, weight_of)
        # Do other nodes store, deliver and remove too? Then a count is soon too old.
        self.is_shared = False
        self._store = store
        self._judge = Judge(quotas)
        self._clock = clock
        self._total = Total()
        self._known: dict[str, Usage] = {}
        self.get: Callable[[str], Usage | None] = self._known.get
        self._counting: Batcher[str, Usage] = Batcher("usage", self._flush, max_in_flight=2)

    def look_up(self, recipient: str) -> asyncio.Future[Usage]:
        """Raises `BatcherFull`."""
        return self._counting.put(recipient)

    def take(self, usage: Usage, frame: device.Send, size: int, now: float) -> Refusal | None:
        """Count one envelope as waiting from now on, unless it is refused.

        size: bytes; now: monotonic seconds. `COUNT_AGAIN` when that is too long ago for a refusal: look it up again.
        """
        share = usage.shares.get(frame.sender) or usage.share_of(frame.sender, now)
        if self.stored.empty and frame.sender in self.stored.empty:
            refusal = self.refuse_stored(share, frame, now)
            if refusal is not None:
                return refusal
        if self._judge.passes(usage, share, size, now):
            return None
        refusal = self._judge.pace(share, frame.id, now)
        if refusal is not None:
            return refusal
        if not self._judge.has_room(usage, share, size):
            if now - usage.counted_at < (SHARED_COUNT_SECONDS if self.is_shared else COUNT_SECONDS):
                return self._judge.full(share, frame.id, now)
            if self._known.get(frame.to) is usage:
                self._forget(frame.to)
            return COUNT_AGAIN
        self._judge.passed(share, now)
        usage.add(share, size)
        return None

    def refuse_stored(self, share: Share, frame: device.Send, now: float) -> Refusal | None:
        """The refusal of an envelope whose sender has had too much stored, and keeps its place."""
        refusal = self.stored.refusal_of(frame.sender)
        if refusal is None:
            return None
        return self._judge.pace(share, frame.id, now) or refused(share, frame.id, refusal, now)

    def take_copy(self, usage: Usage, sender: str, size: int, now: float) -> bool:
        """Count one envelope as waiting from now on, if there is room for it, whatever its sender's pace."""
        share = usage.shares.get(sender) or usage.share_of(sender, now)
        if not self._judge.has_room(usage, share, size):
            return False
        usage.add(share, size)
        return True

    def has_room(self, usage: Usage, sender: str, size: int) -> bool:
        """Has a mailbox room for so many bytes of this sender's?"""
        return self._judge.has_room(usage, usage.share_of(sender, self._clock.monotonic()), size)

    def is_doubtful(self, usage: Usage, sender: str, size: int) -> bool:
        """Does this seem to have no room, by a count that is too old for that?"""
        now = self._clock.monotonic()
        return now - usage.counted_at >= SHARED_COUNT_SECONDS and not self.has_room(usage, sender, size)

    def forget(self, recipient: str) -> None:
        """Count it again when it is next needed."""
        if recipient in self._known:
            self._forget(recipient)

    def add(self, recipient: str, sender: str, size: int) -> None:
        """So many bytes more wait, as a transaction elsewhere has stored them."""
        self.note_stored(sender, size)
        usage = self._known.get(recipient)
        if usage is not None:
            usage.add(usage.share_of(sender, self._clock.monotonic()), size)

    def note_stored(self, sender: str, size: int) -> None:
        """So many bytes, which are counted already, have been stored by a transaction elsewhere."""
        if not self.is_shared:
            # On another node it would not be noticed when they are fetched.
            self.stored.add(sender, size)

    def learn(self, recipient: str, waiting: Iterable[Waiting]) -> Usage:
        """What was found in a mailbox. One that is counted here already stays as it is."""
        usage = self._known.get(recipient)
        if usage is None:
            usage = Usage(self._total, self._clock.monotonic())
            for entry in waiting:
                usage.put(entry.sender, entry.envelopes, entry.size)
            self._known[recipient] = usage
            self.trim()
        return usage

    def remove(self, recipient: str, sender: str, size: int) -> None:
        """An envelope of this sender's waits no longer."""
        usage = self._known.get(recipient)
        if usage is not None:
            usage.remove(sender, size)

    def trim(self) -> None:
        """Forget the first while there are too many, or too many shares of them."""
        while len(self._known) > REMEMBERED or (self._total.shares > MAX_SHARES and len(self._known) > 1):
            self._forget(next(iter(self._known)))
        SHARES.set(self._total.shares)

    def _forget(self, recipient: str) -> None:
        self._total.shares -= len(self._known.pop(recipient).shares)

    async def _flush(self, recipients: Sequence[str]) -> Sequence[Usage]:
        found = await self._store.count(list(dict.fromkeys(recipients)))
        return [self.learn(recipient, found.get(recipient, ())) for recipient in recipients]
