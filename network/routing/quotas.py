"""Quotas and rate limits for each pair of sender and recipient: waiting envelopes, and envelopes per second."""

from __future__ import annotations

import dataclasses
import math

from network.settings import Quotas
from tidings.aio.quota import Quota
from tidings.aio.token_buckets import RateLimit
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


@dataclasses.dataclass(slots=True, eq=False)
class SenderUsage:
    """Usage of a mailbox by one sender."""

    # Waiting envelopes, and their bytes.
    envelopes: int = 0
    bytes: int = 0
    # State of the pair's rate limit (`RateLimit`), monotonic seconds.
    full_at: float = 0.0
    # Id of the first envelope that was refused and not repeated; later ones wait for it until `until`, in monotonic
    # seconds, and receive `refusal`. `None` when there is none.
    first_refused: str = ""
    until: float = 0.0
    refusal: QuotaRefusal | None = None

    def is_idle(self, now: float) -> bool:
        """Return whether it can be dropped without losing state."""
        return not self.envelopes and self.full_at <= now and self.until <= now


@dataclasses.dataclass(slots=True)
class SenderUsageCount:
    """Number of `SenderUsage` objects in memory."""

    shares: int = 0


@dataclasses.dataclass(slots=True, eq=False)
class Usage:
    """Waiting envelopes of one recipient, in memory or in the mailbox, each until its acknowledgement."""

    total: SenderUsageCount
    # Monotonic seconds at which the mailbox was counted.
    counted_at: float
    # Waiting envelopes of all senders, and their bytes.
    envelopes: int = 0
    bytes: int = 0
    shares: dict[str, SenderUsage] = dataclasses.field(default_factory=dict)
    _sweep_at: int = _SHARES

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
        self.total.shares += 1
        return share

    def _sweep(self, now: float) -> None:
        kept = {sender: share for sender, share in self.shares.items() if not share.is_idle(now)}
        self.total.shares -= len(self.shares) - len(kept)
        self.shares = kept
        self._sweep_at = max(_SHARES, 2 * len(kept))


class QuotaCheck:
    """Decisions by the quotas; the caller counts accepted envelopes."""

    def __init__(self, quotas: Quotas) -> None:
        self._envelopes = Quota(quotas.mailbox, quotas.share, is_fair=True)
        self._bytes = Quota(quotas.mailbox_bytes, quotas.share_bytes, is_fair=True)
        self._rate = RateLimit(1.0 / quotas.pair_rate if quotas.pair_rate else 0.0, quotas.pair_burst)
        # A bucket holds a token from this number of seconds before `full_at` on.
        self._slack = (self._rate.burst - 1) * self._rate.interval
        self._detail = f"at most {quotas.pair_rate:g} envelopes a second to one recipient"

    def check_rate(self, share: SenderUsage, id: str, now: float) -> QuotaRefusal | None:
        """Return the refusal of an envelope that exceeds the rate limit or follows a refused one, `None` when it may
        pass.
        """
        if share.refusal is not None:
            if id != share.first_refused and now < share.until:
                return share.refusal
            if id != share.first_refused:
                # The sender has given up the refused envelope.
                share.refusal = None
        if share.full_at > now and (wait := self._rate.wait(share.full_at, now)):
            return refused(share, id, QuotaRefusal(device.RATE_LIMITED, self._detail, math.ceil(wait)), now)
        return None

    def has_room(self, usage: Usage, share: SenderUsage, size: int) -> bool:
        """Return whether `size` more bytes may wait in this mailbox from this sender."""
        return self._bytes.has_room(usage.bytes, share.bytes, size) and self._envelopes.has_room(
            usage.envelopes, share.envelopes
        )

    def passes(self, usage: Usage, share: SenderUsage, size: int, now: float) -> bool:
        """Count an envelope in the usual case, that rate limit and quotas admit it. On False decide by `check_rate` and
        `has_room`.

        Every envelope passes here, so the rules of `RateLimit` and `Quota` are written out.
        """
        envelopes, quota, interval = share.envelopes + 1, self._envelopes, self._rate.interval
        size += share.bytes
        if (
            share.refusal is None
            and share.full_at - now <= self._slack
            and envelopes <= quota.each
            and usage.envelopes + envelopes <= quota.limit
            and size <= self._bytes.each
            and usage.bytes + size <= self._bytes.limit
        ):
            share.full_at = (share.full_at if share.full_at > now else now) + interval
            usage.envelopes += 1
            usage.bytes += size - share.bytes
            share.envelopes = envelopes
            share.bytes = size
            return True
        return False

    def passed(self, share: SenderUsage, now: float) -> None:
        """Consume the token of an accepted envelope, and admit those behind it."""
        share.full_at = self._rate.consume(share.full_at, now)
        share.refusal = None

    def take_token(self, share: SenderUsage, now: float) -> bool:
        """Consume the token of an envelope that takes no room; return whether there was one."""
        if share.refusal is not None or (share.full_at > now and self._rate.wait(share.full_at, now)):
            return False
        share.full_at = self._rate.consume(share.full_at, now)
        return True

    def full(self, share: SenderUsage, id: str, now: float) -> QuotaRefusal:
        """Return the refusal of an envelope without room."""
        detail = "too many bytes of this sender wait for the recipient"
        return refused(share, id, QuotaRefusal(device.MAILBOX_FULL, detail, FULL_SECONDS), now)


def refused(share: SenderUsage, id: str, refusal: QuotaRefusal, now: float) -> QuotaRefusal:
    """Refuse this envelope and later ones of its sender to its recipient until it is repeated; return the refusal."""
    share.first_refused = id
    share.refusal = refusal
    share.until = now + refusal.retry_after + PATIENCE
    return refusal
