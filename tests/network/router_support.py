"""Doubles for router tests: a slow mailbox in memory, a directory of all numbers, connections that keep
everything."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Mapping, Sequence

from network.routing.delivery_queue import DeliveryQueue
from network.routing.mailbox_usage import MailboxUsages
from network.settings import Limits, Quotas
from tests.manual_clock import ManualClock
from tidings.storage.network.mailbox import Envelope, WaitingEnvelopes
from tidings.wire import device


def drawn_limits(rng: random.Random, *sizes: int) -> Limits:
    """Return random limits.

    sizes: candidates for the unacknowledged bytes of a device and of a connection.
    """
    return Limits(
        window=rng.choice([1, 3, 10]),
        held=rng.choice([1, 4, 20]),
        window_bytes=rng.choice(sizes),
        session_bytes=rng.choice(sizes),
    )


class SlowMailbox:
    """Mailbox in memory that takes a random number of event-loop iterations for each operation."""

    def __init__(self, rng: random.Random) -> None:
        self.rows: dict[int, Envelope] = {}
        self.rng = rng
        self.slowness = rng.choice([1, 6, 60])

    async def pause(self) -> None:
        for _ in range(self.rng.randrange(self.slowness)):
            await asyncio.sleep(0)

    async def change(self, stored: Sequence[Envelope], removed: Sequence[int]) -> None:
        await self.pause()
        known = {(row.sender, row.id) for row in self.rows.values()}
        self.rows.update((row.seq, row) for row in stored if (row.sender, row.id) not in known)
        for seq in removed:
            self.rows.pop(seq, None)
        await self.pause()

    async def has_any(self, recipient: str) -> bool:
        await self.pause()
        found = any(row.recipient == recipient for row in self.rows.values())
        await self.pause()
        return found

    async def list_page(
        self, recipient: str, *, after: int, now: int, limit: int, hash_slots: Sequence[int] | None
    ) -> Sequence[Envelope]:
        await self.pause()
        rows = sorted(
            (row.seq, row)
            for row in self.rows.values()
            if row.recipient == recipient and row.seq > after and (hash_slots is None or row.slot in hash_slots)
        )
        await self.pause()
        return [row for _, row in rows[:limit]]

    async def last_seq(self) -> int:
        return max(self.rows, default=0)

    async def count(self, recipients: Sequence[str]) -> Mapping[str, Sequence[WaitingEnvelopes]]:
        raise AssertionError("these mailboxes are known")


class Everybody:
    """Directory in which all numbers are registered."""

    def get(self, number: str) -> frozenset[str] | None:
        return frozenset()

    def look_up(self, number: str) -> asyncio.Future[frozenset[str] | None]:
        raise AssertionError


def known(store: SlowMailbox, quotas: Quotas | None = None, clock: ManualClock | None = None) -> MailboxUsages:
    """Return mailboxes that are known to be empty."""
    mailbox_usages = MailboxUsages(store, quotas or Quotas(), clock or ManualClock())
    for last in range(1, 10):
        mailbox_usages.learn(f"1555000000{last}", ())
    return mailbox_usages


class Device:
    """Connection with one device. It keeps what it was sent."""

    def __init__(self, log: list[str], limits: Limits | None = None) -> None:
        self.host = "127.0.0.1"
        self.deliveries: dict[int, DeliveryQueue] = {}
        self.in_flight_bytes = 0
        self.waiting: dict[DeliveryQueue, None] = {}
        self.limits = limits or Limits()
        self.received: list[tuple[int, str]] = []
        self.reason: str | None = None
        self.log = log

    def deliver(self, frame: device.Deliver, queue: DeliveryQueue) -> int:
        assert self.reason is None
        assert queue.in_flight_bytes < self.limits.window_bytes
        assert self.in_flight_bytes < self.limits.session_bytes
        n = len(self.received) + 1
        self.received.append((n, frame.id))
        self.log.append(frame.id)
        self.deliveries[n] = queue
        return n

    def deliver_transient(self, frame: device.Deliver) -> None:
        raise AssertionError("nothing transient is sent here")

    def detached(self, number: str, reason: str) -> None:
        self.reason = reason


class Fleet:
    """Connection with any number of devices. It keeps (delivery number, recipient, id)."""

    def __init__(self, limits: Limits) -> None:
        self.host = "127.0.0.1"
        self.deliveries: dict[int, DeliveryQueue] = {}
        self.in_flight_bytes = 0
        self.waiting: dict[DeliveryQueue, None] = {}
        self.limits = limits
        self.received: list[tuple[int, str, str]] = []
        self.numbers: set[str] = set()

    def deliver(self, frame: device.Deliver, queue: DeliveryQueue) -> int:
        assert frame.to in self.numbers
        assert queue.in_flight_bytes < self.limits.window_bytes
        assert self.in_flight_bytes < self.limits.session_bytes
        n = len(self.received) + 1
        self.received.append((n, frame.to, frame.id))
        self.deliveries[n] = queue
        return n

    def deliver_transient(self, frame: device.Deliver) -> None:
        raise AssertionError("nothing transient is sent here")

    def detached(self, number: str, reason: str) -> None:
        self.numbers.discard(number)


class Sender:
    def __init__(self) -> None:
        self.accepted_numbers: list[int] = []
        self.refusals: list[tuple[int, str]] = []

    def accepted(self, n: int) -> None:
        self.accepted_numbers.append(n)

    def refused(self, n: int, reason: str, detail: str = "", retry_after: int = 0) -> None:
        self.refusals.append((n, reason))

    def superseded(self, n: int) -> None: ...
