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
REPEAT_SECONDS = 10.0
# Senders of one mailbox at which idle ones are first removed; then whenever their number has doubled.
_SENDERS = 64


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

    count: int = 0


@dataclasses.dataclass(slots=True, eq=False)
class MailboxUsage:
    """Waiting envelopes of one recipient, in memory or in the mailbox, each until its acknowledgement."""

    total: SenderUsageCount
    # Monotonic seconds at which the mailbox was counted.
    counted_at: float
    # Waiting envelopes of all senders, and their bytes.
    envelopes: int = 0
    bytes: int = 0
    by_sender: dict[str, SenderUsage] = dataclasses.field(default_factory=dict)
    _sweep_at: int = _SENDERS

    def put(self, sender: str, envelopes: int, size: int) -> None:
        """Set the envelopes and bytes of this sender in the mailbox."""
        self._add_sender(sender, SenderUsage(envelopes, size))
        self.envelopes += envelopes
        self.bytes += size

    def of_sender(self, sender: str, now: float) -> SenderUsage:
        """Return this sender's usage; create it if necessary."""
        sender_usage = self.by_sender.get(sender)
        if sender_usage is None:
            if len(self.by_sender) >= self._sweep_at:
                self._sweep(now)
            sender_usage = self._add_sender(sender, SenderUsage())
        return sender_usage

    def add(self, sender_usage: SenderUsage, size: int) -> None:
        """Count one more waiting envelope."""
        self.envelopes += 1
        self.bytes += size
        sender_usage.envelopes += 1
        sender_usage.bytes += size

    def remove(self, sender: str, size: int) -> None:
        """Count one waiting envelope less. Envelopes that were never counted are not subtracted."""
        sender_usage = self.by_sender.get(sender)
        if sender_usage is not None and sender_usage.envelopes:
            size = min(size, sender_usage.bytes)
            sender_usage.envelopes -= 1
            sender_usage.bytes -= size
            self.envelopes -= 1
            self.bytes -= size

    def _add_sender(self, sender: str, sender_usage: SenderUsage) -> SenderUsage:
        self.by_sender[sender] = sender_usage
        self.total.count += 1
        return sender_usage

    def _sweep(self, now: float) -> None:
        kept = {
            sender: sender_usage for sender, sender_usage in self.by_sender.items() if not sender_usage.is_idle(now)
        }
        self.total.count -= len(self.by_sender) - len(kept)
        self.by_sender = kept
        self._sweep_at = max(_SENDERS, 2 * len(kept))


class QuotaCheck:
    """Decisions by the quotas; the caller counts accepted envelopes."""

    def __init__(self, quotas: Quotas) -> None:
        self._envelopes = Quota(quotas.mailbox, quotas.share, is_fair=True)
        self._bytes = Quota(quotas.mailbox_bytes, quotas.share_bytes, is_fair=True)
        self._rate = RateLimit(1.0 / quotas.pair_rate if quotas.pair_rate else 0.0, quotas.pair_burst)
        # A bucket holds a token from this number of seconds before `full_at` on.
        self._slack = (self._rate.burst - 1) * self._rate.interval
        self._detail = f"at most {quotas.pair_rate:g} envelopes a second to one recipient"

    def check_rate(self, sender_usage: SenderUsage, id: str, now: float) -> QuotaRefusal | None:
        """Return the refusal of an envelope that exceeds the rate limit or follows a refused one, `None` when it may
        pass.
        """
        if sender_usage.refusal is not None:
            if id != sender_usage.first_refused and now < sender_usage.until:
                return sender_usage.refusal
            if id != sender_usage.first_refused:
                # The sender has given up the refused envelope.
                sender_usage.refusal = None
        if sender_usage.full_at > now and (wait := self._rate.wait(sender_usage.full_at, now)):
            return refused(sender_usage, id, QuotaRefusal(device.RATE_LIMITED, self._detail, math.ceil(wait)), now)
        return None

    def has_room(self, usage: MailboxUsage, sender_usage: SenderUsage, size: int) -> bool:
        """Return whether `size` more bytes may wait in this mailbox from this sender."""
        return self._bytes.has_room(usage.bytes, sender_usage.bytes, size) and self._envelopes.has_room(
            usage.envelopes, sender_usage.envelopes
        )

    def passes(self, usage: MailboxUsage, sender_usage: SenderUsage, size: int, now: float) -> bool:
        """Count an envelope in the usual case, that rate limit and quotas admit it. On False decide by `check_rate` and
        `has_room`.

        Every envelope passes here, so the rules of `RateLimit` and `Quota` are written out.
        """
        envelopes, quota, interval = sender_usage.envelopes + 1, self._envelopes, self._rate.interval
        size += sender_usage.bytes
        if (
            sender_usage.refusal is None
            and sender_usage.full_at - now <= self._slack
            and envelopes <= quota.each
            and usage.envelopes + envelopes <= quota.limit
            and size <= self._bytes.each
            and usage.bytes + size <= self._bytes.limit
        ):
            sender_usage.full_at = (sender_usage.full_at if sender_usage.full_at > now else now) + interval
            usage.envelopes += 1
            usage.bytes += size - sender_usage.bytes
            sender_usage.envelopes = envelopes
            sender_usage.bytes = size
            return True
        return False

    def passed(self, sender_usage: SenderUsage, now: float) -> None:
        """Consume the token of an accepted envelope, and admit those behind it."""
        sender_usage.full_at = self._rate.consume(sender_usage.full_at, now)
        sender_usage.refusal = None

    def take_token(self, sender_usage: SenderUsage, now: float) -> bool:
        """Consume the token of an envelope that takes no room; return whether there was one."""
        if sender_usage.refusal is not None or (
            sender_usage.full_at > now and self._rate.wait(sender_usage.full_at, now)
        ):
            return False
        sender_usage.full_at = self._rate.consume(sender_usage.full_at, now)
        return True

    def full(self, sender_usage: SenderUsage, id: str, now: float) -> QuotaRefusal:
        """Return the refusal of an envelope without room."""
        detail = "too many bytes of this sender wait for the recipient"
        return refused(sender_usage, id, QuotaRefusal(device.MAILBOX_FULL, detail, FULL_SECONDS), now)


def refused(sender_usage: SenderUsage, id: str, refusal: QuotaRefusal, now: float) -> QuotaRefusal:
    """Refuse this envelope and later ones of its sender to its recipient until it is repeated; return the refusal."""
    sender_usage.first_refused = id
    sender_usage.refusal = refusal
    sender_usage.until = now + refusal.retry_after + REPEAT_SECONDS
    return refusal
