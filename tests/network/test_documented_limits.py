"""Quotas and rate limits of the network without any variable set: the figures of docs/device-api.md, as literals."""

from __future__ import annotations

from typing import Any

import pytest

from network.directory.device_rate_limits import DeviceRateLimiter
from network.routing.mailbox_usage import MailboxUsages
from network.routing.quotas import QuotaRefusal
from network.settings import BlobSettings, DeviceRateLimits, Limits, Quotas
from tests.manual_clock import ManualClock
from tests.network.test_settings import read
from tidings.wire import device

MIB = 1024 * 1024
ALICE, BOB, CAROL = "15550000001", "15550000002", "15550000003"


class Mailbox:
    """Bob's mailbox, empty at first, and what Alice sends to it."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        store: Any = None
        self.table = MailboxUsages(store, Quotas(), self.clock)
        self.usage = self.table.learn(BOB, ())
        self._count = 0

    def send(self, sender: str = ALICE, size: int = 100) -> QuotaRefusal | None:
        self._count += 1
        frame = device.Send(self._count, sender, BOB, f"m{self._count}", device.MESSAGE, b"")
        refusal = self.table.take(self.usage, frame, size, self.clock.monotonic())
        if refusal is not None:
            # The sender sends the same envelope again later.
            self._count -= 1
        return refusal


def test_a_pair_may_send_1000_envelopes_at_once_and_then_500_per_second() -> None:
    mailbox = Mailbox()

    def burst() -> int:
        taken = 0
        while (refusal := mailbox.send()) is None:
            taken += 1
        assert refusal.reason == device.RATE_LIMITED
        return taken

    assert 990 <= burst() <= 1005
    mailbox.clock.advance(1.0)
    assert 490 <= burst() <= 505


def test_one_sender_may_fill_16_mib_of_a_mailbox_and_others_still_have_room() -> None:
    mailbox = Mailbox()
    assert [mailbox.send(size=MIB) for _ in range(16)] == [None] * 16
    refusal = mailbox.send(size=MIB)
    assert refusal is not None
    assert refusal.reason == device.MAILBOX_FULL
    assert mailbox.send(CAROL, size=MIB) is None


def test_one_sender_may_store_10_000_envelopes_in_a_mailbox() -> None:
    mailbox = Mailbox()
    for _ in range(10_000):
        mailbox.clock.advance(0.002)
        assert mailbox.send() is None
    mailbox.clock.advance(0.002)
    refusal = mailbox.send()
    assert refusal is not None
    assert refusal.reason == device.MAILBOX_FULL


@pytest.mark.parametrize(
    ("call", "burst", "rate"),
    [
        ("fetch", 20_000, 200),
        ("check", 1_000_000, 100),
        ("group", 500, 5),
        ("blob", 5000, 2),
        ("keys", 100, 1),
        ("block", 1000, 1),
    ],
)
def test_calls_of_one_device_have_a_burst_and_a_rate(call: str, burst: int, rate: int) -> None:
    clock = ManualClock()
    limits = DeviceRateLimiter(DeviceRateLimits(), clock)
    assert limits.take(call, ALICE, burst) == 0
    assert limits.take(call, ALICE, rate) > 0
    clock.advance(1.0)
    assert limits.take(call, ALICE, rate) == 0
    assert limits.take(call, ALICE, rate) > 0
    assert limits.take(call, BOB, burst) == 0


def test_one_device_gets_5_one_time_keys_of_a_number_per_day() -> None:
    clock = ManualClock()
    limits = DeviceRateLimiter(DeviceRateLimits(), clock)
    assert [limits.take_one_time(ALICE, BOB) for _ in range(6)] == [True] * 5 + [False]
    clock.advance(24 * 3600.0)
    assert [limits.take_one_time(ALICE, BOB) for _ in range(6)] == [True] * 5 + [False]


def test_other_defaults_match_the_page(tmp_path: Any) -> None:
    quotas, limits, blobs = Quotas(), Limits(), read(tmp_path).blobs
    assert (quotas.mailbox, quotas.mailbox_bytes) == (1_000_000, 1024 * MIB)
    assert (quotas.stored_bytes, quotas.stored_rate) == (1024 * MIB, 256 * 1024)
    assert (limits.unauthenticated, limits.unauthenticated_each, limits.login) == (500, 100, 10.0)
    assert isinstance(blobs, BlobSettings)
    assert blobs.device_quota == 2048 * MIB
