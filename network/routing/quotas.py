"""Quotas of mailboxes: what one sender may have waiting for one recipient, and how fast it may send to them.

A sender's share of a mailbox is at most `Quotas.share`, and at most as much as is still free in it. So one sender gets
half of a mailbox at most, each of two a third, and whoever comes next always finds as much room as anybody else has.
"""

from __future__ import annotations

import dataclasses
import math

from network.settings import Quotas
from tidings.wire import device

# Seconds after which an envelope that was refused for a full mailbox is sent again.
FULL_SECONDS = 5
# Seconds beyond its time in which the first refused envelope has to come again, so that it keeps its place.
PATIENCE = 10.0
# Shares of one mailbox from which on those that say nothing are looked for, whenever there are twice as many.
_SHARES = 64


@dataclasses.dataclass(frozen=True, slots=True)
class Refusal:
    """Reason of a refusal that passes. retry_after: seconds."""

    reason: str
    detail: str
    retry_after: int


class Share:
    """One sender's share of a mailbox.

    full_at:       monotonic seconds at which its token bucket is full.
    first_refused: id of the first envelope that was refused and has not come again; those behind it wait for it.
    until:         monotonic seconds until which they do.
    refusal:       what they are answered.
    """

    __slots__ = ("bytes", "envelopes", "first_refused", "full_at", "refusal", "until")

    def __init__(self, envelopes: int = 0, size: int = 0) -> None:
        self.envelopes = envelopes
        self.bytes = size
        self.full_at = 0.0
        self.first_refused = ""
        self.until = 0.0
        self.refusal: Refusal | None = None

    def is_idle(self, now: float) -> bool:
        """Would nothing be lost by forgetting it?"""
        return not self.envelopes and self.full_at <= now and self.until <= now


class Total:
    """Count of the shares in memory."""

    __slots__ = ("shares",)

    def __init__(self) -> None:
        self.shares = 0


class Usage:
    """Envelopes of devices that wait for one recipient, in memory or in the mailbox, each until its acknowledgement.

    counted_at: monotonic seconds at which the mailbox was counted.
    """

    __slots__ = ("_sweep_at", "_total", "bytes", "counted_at", "envelopes", "shares")

    def __init__(self, total: Total, counted_at: float) -> None:
        self.envelopes = 0
        self.bytes = 0
        self.counted_at = counted_at
        self.shares: dict[str, Share] = {}
        self._total = total
        self._sweep_at = _SHARES

    def put(self, sender: str, envelopes: int, size: int) -> None:
        """What the mailbox has of this sender's."""
        self._add_share(sender, Share(envelopes, size))
        self.envelopes += envelopes
        self.bytes += size

    def share_of(self, sender: str, now: float) -> Share:
        """This sender's, a new one if need be."""
        share = self.shares.get(sender)
        if share is None:
            if len(self.shares) >= self._sweep_at:
                self._sweep(now)
            share = self._add_share(sender, Share())
        return share

    def add(self, share: Share, size: int) -> None:
        """One more waits."""
        self.envelopes += 1
        self.bytes += size
        share.envelopes += 1
        share.bytes += size

    def remove(self, sender: str, size: int) -> None:
        """One waits no longer. Of what was never counted here nothing is taken away."""
        share = self.shares.get(sender)
        if share is not None and share.envelopes:
            size = min(size, share.bytes)
            share.envelopes -= 1
            share.bytes -= size
            self.envelopes -= 1
            self.bytes -= size

    def _add_share(self, sender: str, share: Share) -> Share:
        self.shares[sender] = share
        self._total.shares += 1
        return share

    def _sweep(self, now: float) -> None:
        kept = {sender: share for sender, share in self.shares.items() if not share.is_idle(now)}
        self._total.shares -= len(self.shares) - len(kept)
        self.shares = kept
        self._sweep_at = max(_SHARES, 2 * len(kept))


class Judge:
    """Decisions by the quotas; whoever asks counts what was taken."""

    def __init__(self, quotas: Quotas) -> None:
        self._mailbox, self._mailbox_bytes = quotas.mailbox, quotas.mailbox_bytes
        self._share, self._share_bytes = quotas.share, quotas.share_bytes
        self._rate = quotas.pair_rate
        self._interval = 1.0 / quotas.pair_rate if quotas.pair_rate else 0.0
        self._filling = self._interval * quotas.pair_burst
        self._slack = max(self._filling - self._interval, 0.0)

    def pace(self, share: Share, id: str, now: float) -> Refusal | None:
        """May this envelope pass by its sender's rate, and by those that were refused before it?"""
        if share.refusal is not None:
            if id != share.first_refused and now < share.until:
                return share.refusal
            if id != share.first_refused:
                # Whoever sent it has given it up.
                share.refusal = None
        if self._interval and share.full_at > now:
            wait = share.full_at + self._interval - now - self._filling
            if wait > 0:
                detail = f"at most {self._rate:g} envelopes a second to one recipient"
                return refused(share, id, Refusal(device.RATE_LIMITED, detail, math.ceil(wait)), now)
        return None

    def has_room(self, usage: Usage, share: Share, size: int) -> bool:
        """May so many bytes more wait in this share?"""
        size += share.bytes
        return (
            share.envelopes < self._share
            and share.envelopes < self._mailbox - usage.envelopes
            and size <= self._share_bytes
            and size <= self._mailbox_bytes - usage.bytes
        )

    def passes(self, usage: Usage, share: Share, size: int, now: float) -> bool:
        """The usual case of both in one step: nothing was refused, there are tokens and room. Counts it then."""
        if (
            share.refusal is None
            and share.full_at - now <= self._slack
            and share.envelopes < self._share
            and share.envelopes < self._mailbox - usage.envelopes
            and share.bytes + size <= self._share_bytes
            and share.bytes + size <= self._mailbox_bytes - usage.bytes
        ):
            share.full_at = (share.full_at if share.full_at > now else now) + self._interval
            share.envelopes += 1
            share.bytes += size
            usage.envelopes += 1
            usage.bytes += size
            return True
        return False

    def passed(self, share: Share, now: float) -> None:
        """An envelope was taken: its token goes, and those behind it need not wait for it."""
        share.full_at = (share.full_at if share.full_at > now else now) + self._interval
        share.refusal = None

    def full(self, share: Share, id: str, now: float) -> Refusal:
        """The refusal of an envelope for which there is no room."""
        detail = "too much of this sender's waits for the recipient"
        return refused(share, id, Refusal(device.MAILBOX_FULL, detail, FULL_SECONDS), now)


def refused(share: Share, id: str, refusal: Refusal, now: float) -> Refusal:
    """This envelope is refused, and those of the same sender to the same recipient until it comes again."""
    share.first_refused = id
    share.refusal = refusal
    share.until = now + refusal.retry_after + PATIENCE
    return refusal
