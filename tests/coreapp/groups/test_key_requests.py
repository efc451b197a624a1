"""Messages that wait for the key of their author, which another shard may receive."""

from __future__ import annotations

from unittest import mock

import pytest

from coreapp.groups.arrivals import Arrivals
from coreapp.groups.key_requests import KeyRequests, SenderKeyPending
from coreapp.groups.receipts import ReceiptSteps
from tests.manual_clock import ManualClock
from tidings import e2ee
from tidings.client import sender_keys
from tidings.wire import device
from tidings.wire.device import Deliver

GROUP, AUTHOR = "15550000000-1700000000", "15550110001"


def message(number: int, body: bytes) -> Deliver:
    return Deliver(number, "15550000000", AUTHOR, f"m{number}", device.GROUP, 0, body, [], group=GROUP)


def test_a_message_does_not_wait_for_an_earlier_one_that_cannot_be_read() -> None:
    context = mock.Mock(clock=ManualClock(), owns=lambda number: False)
    events = mock.Mock(requests=KeyRequests(context, mock.Mock()))
    author = e2ee.SenderKeyRecord.create()
    ours = sender_keys.add_key(None, author.distribution())
    damaged, readable = message(1, b"damaged"), message(2, author.encrypt(b"hello"))
    with pytest.raises(SenderKeyPending):
        Arrivals(events, {}, ReceiptSteps({})).decrypt(damaged, e2ee.unlimited)
    batch = Arrivals(events, {AUTHOR: {GROUP: ours}}, ReceiptSteps({}))
    with pytest.raises(e2ee.E2EEError):
        batch.decrypt(damaged, e2ee.unlimited)
    assert batch.decrypt(readable, e2ee.unlimited) == b"hello"
