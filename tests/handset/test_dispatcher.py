"""Waits of envelopes while the wall clock is set."""

from __future__ import annotations

from typing import Any

from handset.sending.dispatcher import Dispatcher
from tests.handset.scripted import BUSINESS, make_device
from tests.manual_clock import ManualClock
from tidings.storage.handset.outbox import OutboxRow

READER = "15550110001"


class SetClock(ManualClock):
    """Clock whose wall time can be set."""

    def set(self, seconds: float) -> None:
        self._now += seconds


class Offered:
    def __init__(self) -> None:
        self.ids: list[str] = []

    def offer(self, device: Any, envelope: OutboxRow) -> None:
        self.ids.append(envelope.id)


async def test_a_clock_set_back_does_not_prolong_the_wait_of_an_envelope() -> None:
    clock, channel = SetClock(), Offered()
    dispatcher = Dispatcher(clock, limit=10)
    device, _ = make_device(READER)
    device.channel = channel
    envelope = OutboxRow("fleet", 1, READER, BUSINESS, "m1", "message", 0, b"", ())
    dispatcher.dispatch([(device, envelope)])
    # The network is overloaded: the envelope is due again in one second.
    dispatcher.postpone(device, envelope)
    clock.set(-3600)
    clock.advance(1.5)
    dispatcher.release_due()
    dispatcher.close()
    assert channel.ids == ["m1", "m1"]
