"""Quotas and rate limits for each pair of sender and recipient: waiting envelopes, and envelopes per second.

A sender's quota in a mailbox is at most `Quotas.share`, and at most as much as is still free. So one sender gets at
most half of a mailbox, each of two a third, and a new sender always finds as much room as any other has used.
"""

from __future__ import annotations

import dataclasses
import math

from network.settings import Quotas
from tidings.wire import device

# Seconds after which a sender should repeat an envelope refused for a full mailbox.
FULL_SECONDS = 5
# Seconds after its retry time in which the first refused envelope must be repeated to keep its position.
PATIENCE = 10.0
# Senders of one mailbox at which idle ones are first removed; then whenever their number has doubled.
_SHARES = 64


@dataclasses.dataclass(frozen=True, slots=True)
class QuotaRefusal:
    """Temporary reason of a refusal."""

    reason: str
    detail: str
    retry_after: int  # Seconds.


class SenderUsage:
    """Usage of a mailbox by one sender.

    full_at: monotonic seconds at which its token bucket is full.
    first_refused: id of the first envelope that was refused and not repeated; later ones wait for it.
    until: monotonic seconds until which they wait.
    refusal: refusal that they receive; `None` when there is none.
    """

    __slots__ = ("bytes", "envelopes", "first_refused", "full_at", "refusal", "until")

    def __init__(self, envelopes: int = 0, size: int = 0) -> None:
        self.envelopes = envelopes
        self.bytes = size
        self.full_at = 0.0
        self.first_refused = ""
        self.until = 0.0
        self.refusal: QuotaRefusal | None = None

    def is_idle(self, now: float) -> bool:
        """Return whether dropping it loses no state."""
        return not self.envelopes and self.full_at <= now and self.until <= now


class Total:
    """Number of `SenderUsage` objects in memory."""

    __slots__ = ("shares",)

    def __init__(self) -> None:
        self.shares = 0


class Usage:
    """Waiting envelopes of one recipient, in memory or in the mailbox, each until its acknowledgement.

    counted_at: monotonic seconds at which the mailbox was counted.
    """

    __slots__ = ("_sweep_at", "_total", "bytes", "counted_at", "envelopes", "shares")

    def __init__(self, total: Total, counted_at: float) -> None:
        self.envelopes = 0
        self.bytes = 0
        self.counted_at = counted_at
        self.shares: dict[str, SenderUsage] = {}
        self._total = total
        self._sweep_at = _SHARES

    def put(self, sender: str, envelopes: int, size: int) -> None:
        """Set the envelopes and bytes of this sender in the mailbox."""
        self._add_share(sender, SenderUsage(envelopes, size))
        self.envelopes += envelopes
        self.bytes += size

    def share_of(self, sender: str, now: float) -> SenderUsage:
        """Return this sender's usage; create it if necessary."""
        share = self.shares.get(sender)
        if share is None:
            if len(self.shares) >= self._sweep_at:
                self._sweep(now)
            share = self._add_share(sender, SenderUsage())
        return share

    def add(self, share: SenderUsage, size: int) -> None:
        """Count one more waiting envelope."""
        self.envelopes += 1
        self.bytes += size
        share.envelopes += 1
        share.bytes += size

    def remove(self, sender: str, size: int) -> None:
        """Count one waiting envelope less. Envelopes that were never counted are not subtracted."""
        share = self.shares.get(sender)
        if share is not None and share.envelopes:
            size = min(size, share.bytes)
            share.envelopes -= 1
            share.bytes -= size
            self.envelopes -= 1
            self.bytes -= size

    def _add_share(self, sender: str, share: SenderUsage) -> SenderUsage:
        self.shares[sender] = share
        self._total.shares += 1
        return share

    def _sweep(self, now: float) -> None:
        kept = {sender: share for sender, share in self.shares.items() if not share.is_idle(now)}
        self._total.shares -= len(self.shares) - len(kept)
        self.shares = kept
        self._sweep_at = max(_SHARES, 2 * len(kept))


class QuotaCheck:
    """Decisions by the quotas. Except for `passes`, the caller counts accepted envelopes."""

    def __init__(self, quotas: Quotas) -> None:
        self._mailbox, self._mailbox_bytes = quotas.mailbox, quotas.mailbox_bytes
        self._share, self._share_bytes = quotas.share, quotas.share_bytes
        self._rate = quotas.pair_rate
        self._interval = 1.0 / quotas.pair_rate if quotas.pair_rate else 0.0
        self._filling = self._interval * quotas.pair_burst
        self._slack = max(self._filling - self._interval, 0.0)

    def pace(self, share: SenderUsage, id: str, now: float) -> QuotaRefusal | None:
        """Return the refusal of an envelope that exceeds the rate limit or follows a refused one, `None` when it may
        pass.
        """
        if share.refusal is not None:
            if id != share.first_refused and now < share.until:
                return share.refusal
            if id != share.first_refused:
                # The sender has given up the refused envelope.
                share.refusal = None
        if self._interval and share.full_at > now:
            wait = share.full_at + self._interval - now - self._filling
            if wait > 0:
                detail = f"at most {self._rate:g} envelopes a second to one recipient"
                return refused(share, id, QuotaRefusal(device.RATE_LIMITED, detail, math.ceil(wait)), now)
        return None

    def has_room(self, usage: Usage, share: SenderUsage, size: int) -> bool:
        """Return whether `size` more bytes may wait in this mailbox from this sender."""
        size += share.bytes
        return (
            share.envelopes < self._share
            and share.envelopes < self._mailbox - usage.envelopes
            and size <= self._share_bytes
            and size <= self._mailbox_bytes - usage.bytes
        )

    def passes(self, usage: Usage, share: SenderUsage, size: int, now: float) -> bool:
        """Check rate limit and quota in one step for the usual case, and count the envelope if both admit it.

        On False the caller decides by `pace` and `has_room`.
        """
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

    def passed(self, share: SenderUsage, now: float) -> None:
        """Consume the token of an accepted envelope, and admit those behind it."""
        share.full_at = (share.full_at if share.full_at > now else now) + self._interval
        share.refusal = None

    def full(self, share: SenderUsage, id: str, now: float) -> QuotaRefusal:
        """Return the refusal of an envelope without room."""
        detail = "too much of this sender's waits for the recipient"
        return refused(share, id, QuotaRefusal(device.MAILBOX_FULL, detail, FULL_SECONDS), now)


def refused(share: SenderUsage, id: str, refusal: QuotaRefusal, now: float) -> QuotaRefusal:
    """Refuse this envelope and later ones of its sender to its recipient until it is repeated; return the refusal."""
    share.first_refused = id
    share.refusal = refusal
    share.until = now + refusal.retry_after + PATIENCE
    return refusal
