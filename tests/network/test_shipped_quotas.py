"""Quotas and rate limits of the network with their shipped values, as literals from docs/device-api.md.

Other tests use smaller values and cannot notice that a shipped one was loosened.
"""

from __future__ import annotations

import pytest

from network.directory.device_rate_limits import DeviceRateLimiter
from network.routing.mailbox_usage import StoredBytes
from network.routing.quotas import MailboxUsage, QuotaCheck, SenderUsage, SenderUsageCount
from network.settings import DeviceRateLimits, Quotas
from tests.manual_clock import ManualClock

MIB = 1024 * 1024


@pytest.mark.parametrize(
    ("call", "burst", "per_second"),
    [("fetch", 20_000, 200), ("check", 1_000_000, 100), ("group", 500, 5), ("blob", 5_000, 2)],
)
def test_a_device_has_a_burst_of_calls_and_then_a_rate(call: str, burst: int, per_second: int) -> None:
    clock = ManualClock()
    limiter = DeviceRateLimiter(DeviceRateLimits(), clock)
    assert limiter.take(call, "1", burst) == 0
    assert limiter.take(call, "1") > 0
    clock.advance(1)
    assert limiter.take(call, "1", per_second) == 0
    assert limiter.take(call, "1") > 0


def test_a_device_gets_five_one_time_keys_of_a_number_at_once_and_five_a_day() -> None:
    clock = ManualClock()
    limiter = DeviceRateLimiter(DeviceRateLimits(), clock)
    assert [limiter.take_one_time("1", "2") for _ in range(6)] == [True] * 5 + [False]
    clock.advance(86_400)
    assert [limiter.take_one_time("1", "2") for _ in range(6)] == [True] * 5 + [False]


def test_a_pair_sends_1000_envelopes_at_once_and_then_500_a_second() -> None:
    check, share = QuotaCheck(Quotas()), SenderUsage()

    def send(now: float) -> int:
        sent = 0
        share.refusal = None
        while check.check_rate(share, "id", now) is None:
            check.passed(share, now)
            sent += 1
        return sent

    assert [send(100.0), send(101.0)] == [1_000, 500]


def test_a_sender_has_10000_envelopes_and_16_mib_waiting_for_one_recipient() -> None:
    check, few, large = (
        QuotaCheck(Quotas()),
        MailboxUsage(SenderUsageCount(), 0.0),
        MailboxUsage(SenderUsageCount(), 0.0),
    )
    share = few.of_sender("1", 0.0)
    while check.has_room(few, share, 1):
        few.add(share, 1)
    assert share.envelopes == 10_000
    share = large.of_sender("1", 0.0)
    while check.has_room(large, share, 65_536):
        large.add(share, 65_536)
    assert share.bytes == 16 * MIB


def test_a_sender_stores_one_gib_and_then_256_kib_a_second() -> None:
    clock = ManualClock()
    stored = StoredBytes(Quotas(), clock, lambda number: 1)
    stored.add("1", 1024 * MIB - 1)
    assert stored.refusal_of("1") is None
    stored.add("1", 1 + 256 * 1024)
    assert stored.refusal_of("1") is not None
    clock.advance(0.99)
    assert stored.refusal_of("1") is not None
    clock.advance(0.02)
    assert stored.refusal_of("1") is None
