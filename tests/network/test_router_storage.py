"""The router and its mailbox: refused rows, large rows, and the size that an envelope counts for."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence

import msgspec
import pymysql
import pytest
import sqlalchemy as sa
from hypothesis import given
from hypothesis import strategies as st

from harness import metrics
from network.connections.session import MAX_BODY, MAX_ID, MAX_REFS
from network.routing.delivery_queue import DeliveryQueue, from_send
from network.routing.router import Router
from network.routing.sequence import SequenceNumbers
from network.settings import Limits
from tests.manual_clock import ManualClock
from tests.network.router_support import Device, Everybody, Sender, SlowMailbox, known
from tidings.storage.network import mailbox
from tidings.storage.network.mailbox import Envelope
from tidings.wire import device

RECIPIENT = "15550000002"


class Choosy(SlowMailbox):
    """Mailbox that refuses the rows of one id, as a database does whose column is too short for it."""

    poison = "poison"

    async def change(self, stored: Sequence[Envelope], removed: Sequence[int]) -> None:
        if any(row.id == self.poison for row in stored):
            raise sa.exc.DataError("INSERT", {}, pymysql.err.DataError(1406, "Data too long for column 'body'"))
        await super().change(stored, removed)


async def settled() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


async def test_a_row_refused_by_the_mailbox_is_skipped_and_not_counted_as_stored() -> None:
    clock = ManualClock()
    store = Choosy(random.Random(1))
    store.slowness = 1
    router = Router(
        store, Everybody(), known(store), numbers=SequenceNumbers(clock, 0), clock=clock, limits=Limits(), ttl=3600
    )
    sender = Sender()
    written = metrics.value("tidings_network_stored_total")
    for n, id_ in enumerate(("m1", "poison", "m2"), 1):
        router.send(sender, device.Send(n, "15550000001", RECIPIENT, id_, "message", b"x"))
    await settled()
    assert sender.accepted_numbers == [1, 3]
    assert sender.refusals == [(2, device.INVALID)]
    assert metrics.value("tidings_network_stored_total") - written == 2
    # Nothing waits for the refused row: a connection that logs in gets the rest.
    connection = Device([])
    router.attach(RECIPIENT, connection)
    await settled()
    assert [id_ for _, id_ in connection.received] == ["m1", "m2"]
    router.acked(connection, [1, 2])
    await router.close()


@pytest.mark.parametrize("acknowledged", [True, False])
async def test_an_envelope_at_its_device_is_not_refused_when_the_mailbox_refuses_it(
    acknowledged: bool,
) -> None:
    clock = ManualClock()
    store = Choosy(random.Random(1))
    store.slowness = 1
    limits = Limits()
    router = Router(
        store, Everybody(), known(store), numbers=SequenceNumbers(clock, 0), clock=clock, limits=limits, ttl=3600
    )
    sender = Sender()
    connection = Device([])
    router.attach(RECIPIENT, connection)
    await settled()
    router.send(sender, device.Send(1, "15550000001", RECIPIENT, "poison", "message", b"x"))
    clock.advance(limits.store_after)
    router.sweep()
    await settled()
    assert (sender.accepted_numbers, sender.refusals) == ([], []), "its device may have shown it"
    if acknowledged:
        router.acked(connection, [1])
        assert (sender.accepted_numbers, sender.refusals) == ([1], [])
    else:
        router.detach(RECIPIENT, connection)
        await settled()
        assert (sender.accepted_numbers, sender.refusals) == ([], [(1, device.INVALID)])
    await router.close()


async def test_reading_large_envelopes_fetches_little_more_than_is_delivered() -> None:
    class Counting(SlowMailbox):
        read = pages = 0

        async def list_page(
            self, recipient: str, *, after: int, now: int, limit: int, hash_slots: Sequence[int] | None
        ) -> Sequence[Envelope]:
            page = await super().list_page(recipient, after=after, now=now, limit=limit, hash_slots=hash_slots)
            self.read += len(page)
            self.pages += 1
            return page

    clock = ManualClock()
    store = Counting(random.Random(1))
    store.slowness = 1
    store.rows = {
        seq: Envelope(seq, "15550000001", f"m{seq}", 0, 2**60, bytes(MAX_BODY), [], recipient=RECIPIENT, kind="message")
        for seq in range(1, 1001)
    }
    router = Router(
        store, Everybody(), known(store), numbers=SequenceNumbers(clock, 0), clock=clock, limits=Limits(), ttl=3600
    )
    connection = Device([])
    router.attach(RECIPIENT, connection)
    while store.rows:
        # One at a time: each acknowledgement frees room for the next.
        router.acked(connection, sorted(connection.deliveries)[:1])
        for _ in range(10):
            await asyncio.sleep(0)
    assert [id for _, id in connection.received] == [f"m{seq}" for seq in range(1, 1001)]
    assert store.read < 2500
    assert store.pages < 150
    await router.close()


@pytest.mark.parametrize("as_json", [True, False])
@given(
    body=st.integers(0, MAX_BODY),
    refs=st.integers(0, MAX_REFS),
    ref=st.text(max_size=MAX_ID) | st.just("\x00" * MAX_ID) | st.just("\N{GRINNING FACE}" * MAX_ID),
    words=st.just('"' * MAX_ID) | st.just(""),
)
def test_an_encoded_envelope_is_smaller_than_twice_its_counted_size(
    as_json: bool, body: int, refs: int, ref: str, words: str
) -> None:
    number = "9" * 15
    send = device.Send(1, number, number, words or "a", device.DELIVERED, bytes(body), [ref] * refs, 0, words, "g" * 32)
    size = mailbox.size_of(send.body, send.refs)
    transit = from_send(Sender(), send, DeliveryQueue(number, 1), size=size, seq=1, now=2**45, ttl=1, due=0)
    transit.frame.n = 2**50
    encoder = msgspec.json.encode if as_json else msgspec.msgpack.encode
    assert 4 + len(encoder(transit.frame)) < 2 * transit.size


class Away(SlowMailbox):
    """Mailbox that never responds."""

    async def change(self, stored: Sequence[Envelope], removed: Sequence[int]) -> None:
        await asyncio.Event().wait()


async def test_slow_acknowledgements_during_an_outage_fill_nothing() -> None:
    clock = ManualClock()
    store = Away(random.Random(1))
    store.slowness = 1
    numbers = SequenceNumbers(clock, 0)
    router = Router(
        store, Everybody(), known(store), numbers=numbers, clock=clock, limits=Limits(undecided=100), ttl=3600
    )
    to, sender = Device([]), Sender()
    router.attach("15550000002", to)
    await settled()
    for n in range(1, 2_000):
        router.send(sender, device.Send(n, "15550000001", "15550000002", f"m{n}", "message", b"x"))
        # The envelope is given to the mailbox before the device acknowledges it.
        clock.advance(1.0)
        router.sweep()
        router.acked(to, [to.received[-1][0]])
        await asyncio.sleep(0)
        assert sender.accepted_numbers[-1] == n
        assert router.undecided == 0
