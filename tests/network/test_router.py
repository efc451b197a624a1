"""The router against thousands of random histories: logins, disconnects, slow devices, a slow mailbox, notices."""

from __future__ import annotations

import asyncio
import itertools
import random
from collections.abc import Sequence

import msgspec
import pymysql
import pytest
import sqlalchemy as sa
from hypothesis import given
from hypothesis import strategies as st

from harness import metrics
from network.connections.sends import MAX_BODY, MAX_ID, MAX_REFS
from network.routing.delivery_queue import DeliveryQueue, from_send
from network.routing.router import Router
from network.routing.sequence import SequenceNumbers
from network.settings import Limits, Quotas
from tests.network.router_support import Device, Everybody, Fleet, Sender, SlowMailbox, known
from tidings.runtime.clock import ManualClock
from tidings.storage.network import mailbox
from tidings.storage.network.group_messages import GroupMessage
from tidings.storage.network.mailbox import Envelope
from tidings.wire import addresses, device

RECIPIENT = "15550000002"
GROUP = "15550000003-5"


@pytest.mark.parametrize("seed", range(100))
async def test_whatever_happens_every_envelope_arrives_and_each_connection_sees_the_order(seed: int) -> None:
    rng = random.Random(seed)
    clock = ManualClock()
    store = SlowMailbox(rng)
    limits = Limits(
        window=rng.choice([1, 3, 10]),
        held=rng.choice([1, 4, 20]),
        window_bytes=rng.choice([1, 2000, 10_000, 10_000_000]),
        session_bytes=rng.choice([1, 2000, 10_000, 10_000_000]),
    )
    numbers = SequenceNumbers(clock, 0)
    router = Router(store, Everybody(), known(store), numbers=numbers, clock=clock, limits=limits, ttl=3600)
    sender = Sender()
    connections: list[Device] = []
    delivered: list[str] = []
    arrivals: dict[str, int] = {}
    acknowledged: set[str] = set()
    # Of messages to a group: those that are kept for copies in memory, and those that came to nothing.
    kept: set[int] = set()
    given_back: set[str] = set()
    router.live.on_decided = kept.remove
    sent = notices = copies = 0
    running: set[asyncio.Task[None]] = set()

    def body() -> bytes:
        return bytes(rng.choice([0, rng.randrange(200), rng.randrange(10_000)]))

    async def notice(id: str) -> None:
        slot = addresses.slot_of("15550000003")
        arrivals[id] = seq = router.reserve(RECIPIENT, slot)
        await store.pause()
        store.rows[seq] = Envelope(
            seq, "15550000003", id, 0, 2**60, body(), [], recipient=RECIPIENT, kind=device.IDENTITY
        )
        stored = store.rows[seq]
        await store.pause()
        router.release(RECIPIENT, slot, seq, rng.choice([None, stored]))

    async def copy(id: str) -> None:
        """Of a message to a group, whose transaction may fail; whoever is not here has it stored."""
        data = body()
        seq = router.live.reserve(RECIPIENT)
        if not seq:
            await notice(id)
            return
        arrivals[id] = seq
        await store.pause()
        if rng.random() < 0.1:
            router.live.give_back(RECIPIENT, seq)
            given_back.add(id)
        else:
            kept.add(seq)
            message = GroupMessage(seq, "15550000003", id, 0, 2**60, data, [], group=GROUP, copies={RECIPIENT: seq})
            router.live.hand_over(message)

    def acknowledge(count: int) -> None:
        connection = connections[-1]
        waiting = [entry for entry in connection.received if entry[0] in connection.deliveries]
        if rng.random() < 0.2:
            rng.shuffle(waiting)
        chosen = waiting[:count]
        acknowledged.update(id for _, id in chosen)
        router.acked(connection, [n for n, _ in chosen])

    def login() -> None:
        connections.append(Device(delivered, limits))
        router.attach(RECIPIENT, connections[-1])

    for _ in range(400):
        action = rng.random()
        online = bool(connections) and connections[-1].reason is None
        if action < 0.45:
            for _ in range(rng.choice([1, 1, 1, 8])):
                sent += 1
                id = f"m{sent}"
                frame = device.Send(n=sent, sender="15550000001", to=RECIPIENT, id=id, kind="message", body=body())
                router.send(sender, frame)
                # Between this one's number and the next one's.
                arrivals[id] = numbers.next()
        elif action < 0.65 and online:
            acknowledge(rng.choice([1, 2, 100]))
        elif action < 0.72:
            login()
        elif action < 0.78 and online:
            router.detach(RECIPIENT, connections[-1])
        elif action < 0.84:
            clock.advance(rng.choice([0.2, 1.0]))
            router.sweep()
        elif action < 0.87:
            notices += 1
            running.add(asyncio.create_task(notice(f"notice{notices}")))
        elif action < 0.95:
            copies += 1
            running.add(asyncio.create_task(copy(f"copy{copies}")))
        for _ in range(rng.randrange(4)):
            await asyncio.sleep(0)

    # A connection that lives on must get everything too, without another login to help it.
    if not connections or connections[-1].reason is not None:
        login()
    await asyncio.gather(*running)
    everything = {f"m{i + 1}" for i in range(sent)} | {f"notice{i + 1}" for i in range(notices)}
    everything |= {f"copy{i + 1}" for i in range(copies)} - given_back
    for turn in range(20_000):
        acknowledge(100)
        if turn == 500:
            store.slowness = 1
        await asyncio.sleep(0)
        if acknowledged == everything and not store.rows and len(sender.accepted_numbers) == sent:
            break
    assert acknowledged == everything
    assert sorted(sender.accepted_numbers) == list(range(1, sent + 1))
    assert sender.refusals == []
    assert store.rows == {}
    assert (kept, router.live.count) == (set(), 0), "no message is kept when all its copies are decided"
    assert router.undecided == 0
    for connection in connections:
        seen = [id for _, id in connection.received]
        assert len(seen) == len(set(seen)), "once for each connection"
        assert seen == sorted(seen, key=arrivals.__getitem__), "in the order of arrival"
    first_deliveries = list(dict.fromkeys(delivered))
    assert first_deliveries == sorted(first_deliveries, key=arrivals.__getitem__), "nothing overtakes on any connection"
    router.detach(RECIPIENT, connections[-1])
    for _ in range(100):
        await asyncio.sleep(0)
    assert router.recipients == 0, "nothing is kept of a recipient that is gone"
    await router.close()


async def test_accepted_means_acknowledged_or_stored_at_every_moment() -> None:
    rng = random.Random(1)
    clock = ManualClock()
    store = SlowMailbox(rng)
    acknowledged: set[str] = set()

    class Strict(Sender):
        def accepted(self, n: int) -> None:
            id = f"m{n}"
            assert id in acknowledged or any(row.id == id for row in store.rows.values())
            super().accepted(n)

    router = Router(
        store,
        Everybody(),
        known(store, Quotas(pair_rate=0)),
        numbers=SequenceNumbers(clock, 0),
        clock=clock,
        limits=Limits(window=5, held=5),
        ttl=3600,
    )
    sender = Strict()
    connection = Device([])
    for n in range(1, 2001):
        if n % 50 == 0:
            router.detach(RECIPIENT, connection)
        if n % 50 == 10:
            connection = Device([])
            router.attach(RECIPIENT, connection)
        router.send(sender, device.Send(n=n, sender="15550000001", to=RECIPIENT, id=f"m{n}", kind="message"))
        if rng.random() < 0.3:
            waiting = [entry for entry in connection.received if entry[0] in connection.deliveries]
            acknowledged.update(id for _, id in waiting)
            router.acked(connection, [number for number, _ in waiting])
        if rng.random() < 0.2:
            await asyncio.sleep(0)
    await router.close()
    assert sorted(sender.accepted_numbers) == list(range(1, 2001))


@pytest.mark.parametrize("seed", range(50))
async def test_devices_that_share_a_connection_take_turns_and_each_gets_everything_in_order(seed: int) -> None:
    rng = random.Random(seed)
    clock = ManualClock()
    store = SlowMailbox(rng)
    limits = Limits(
        window=rng.choice([1, 3, 10]),
        held=rng.choice([1, 4, 20]),
        window_bytes=rng.choice([1, 2000, 10_000]),
        session_bytes=rng.choice([1, 2000, 10_000]),
    )
    router = Router(
        store, Everybody(), known(store), numbers=SequenceNumbers(clock, 0), clock=clock, limits=limits, ttl=3600
    )
    sender = Sender()
    fleet = ["15550000002", "15550000003", "15550000004"]
    connection = Fleet(limits)
    sent: dict[str, list[str]] = {number: [] for number in fleet}
    acknowledged: set[str] = set()
    n = 0

    def acknowledge(count: int) -> None:
        waiting = [entry for entry in connection.received if entry[0] in connection.deliveries]
        chosen = rng.sample(waiting, min(count, len(waiting)))
        acknowledged.update(id for _, _, id in chosen)
        router.acked(connection, [number for number, _, _ in chosen])

    for _ in range(300):
        action = rng.random()
        number = rng.choice(fleet)
        if action < 0.5:
            for _ in range(rng.choice([1, 1, 8])):
                n += 1
                sent[number].append(f"m{n}")
                body = bytes(rng.choice([0, rng.randrange(200), rng.randrange(10_000)]))
                router.send(sender, device.Send(n, "15550000001", number, f"m{n}", "message", body))
        elif action < 0.7:
            acknowledge(rng.choice([1, 2, 100]))
        elif action < 0.8 and number not in connection.numbers:
            connection.numbers.add(number)
            router.attach(number, connection)
        elif action < 0.83:
            router.detach(number, connection)
        elif action < 0.9:
            clock.advance(rng.choice([0.2, 1.0]))
            router.sweep()
        for _ in range(rng.randrange(4)):
            await asyncio.sleep(0)

    for number in fleet:
        if number not in connection.numbers:
            connection.numbers.add(number)
            router.attach(number, connection)
    store.slowness = 1
    for _ in range(20_000):
        acknowledge(100)
        await asyncio.sleep(0)
        if len(acknowledged) == n and not store.rows and len(sender.accepted_numbers) == n:
            break
    assert acknowledged == {id for ids in sent.values() for id in ids}
    assert sorted(sender.accepted_numbers) == list(range(1, n + 1))
    assert connection.in_flight_bytes == 0
    assert connection.waiting == {}
    for number in fleet:
        ids = [id for _, to, id in connection.received if to == number]
        assert list(dict.fromkeys(ids)) == sent[number]
        router.detach(number, connection)
    for _ in range(100):
        await asyncio.sleep(0)
    assert router.recipients == 0
    await router.close()


async def test_a_device_that_has_waited_for_its_turn_gets_it_before_one_that_has_always_more() -> None:
    clock = ManualClock()
    # Room for 3 and 4 envelopes of 1,000 bytes.
    limits = Limits(window_bytes=3000, session_bytes=5024)
    store = SlowMailbox(random.Random(1))
    store.slowness = 1
    router = Router(
        store, Everybody(), known(store), numbers=SequenceNumbers(clock, 0), clock=clock, limits=limits, ttl=3600
    )
    greedy, patient, late = "15550000002", "15550000003", "15550000004"
    connection = Fleet(limits)
    for number in (greedy, patient, late):
        connection.numbers.add(number)
        router.attach(number, connection)
    sent = itertools.count(1)
    for _ in range(20):
        await asyncio.sleep(0)

    def send(*numbers: str) -> None:
        for number, n in zip(numbers, sent, strict=False):
            router.send(Sender(), device.Send(n, "15550000001", number, f"m{n}", "message", bytes(1000)))

    send(greedy, greedy, greedy, late, patient, late, patient)
    assert [to for _, to, _ in connection.received] == [greedy, greedy, greedy, late]
    # Nothing goes out until half of the connection is free, whatever comes meanwhile.
    router.acked(connection, [1])
    send(greedy)
    assert len(connection.received) == 4
    router.acked(connection, [2])
    assert [to for _, to, _ in connection.received[4:]] == [patient, patient]
    await router.close()


async def test_a_device_that_waited_on_one_connection_gets_everything_on_its_next_one_and_nothing_on_the_old() -> None:
    clock = ManualClock()
    limits = Limits(session_bytes=1000)
    store = SlowMailbox(random.Random(1))
    store.slowness = 1
    router = Router(
        store, Everybody(), known(store), numbers=SequenceNumbers(clock, 0), clock=clock, limits=limits, ttl=3600
    )
    other, moving = "15550000002", "15550000003"
    old, new = Fleet(limits), Fleet(limits)
    old.numbers = {other, moving}
    for number in (other, moving):
        router.attach(number, old)
    for _ in range(20):
        await asyncio.sleep(0)
    for n, number in enumerate([other, moving], start=1):
        router.send(Sender(), device.Send(n, "15550000001", number, f"m{n}", "message", bytes(1000)))
    assert [queue.number for queue in old.waiting] == [moving]

    new.numbers = {moving}
    router.attach(moving, new)
    assert old.waiting == {}
    router.acked(old, [1])
    for _ in range(100):
        await asyncio.sleep(0)
    assert [id for _, _, id in old.received] == ["m1"]
    assert [id for _, _, id in new.received] == ["m2"]
    await router.close()


class Choosy(SlowMailbox):
    """A mailbox that refuses the rows of one id, as a database does whose column is too short for it."""

    poison = "poison"

    async def change(self, stored: Sequence[Envelope], removed: Sequence[int]) -> None:
        if any(row.id == self.poison for row in stored):
            raise sa.exc.DataError("INSERT", {}, pymysql.err.DataError(1406, "Data too long for column 'body'"))
        await super().change(stored, removed)


async def settled() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


async def test_a_row_that_the_mailbox_refuses_is_set_aside_alone_and_counts_as_stored_nowhere() -> None:
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
    # Nothing waits for it: whoever logs in gets the rest.
    connection = Device([])
    router.attach(RECIPIENT, connection)
    await settled()
    assert [id_ for _, id_ in connection.received] == ["m1", "m2"]
    router.acked(connection, [1, 2])
    await router.close()


@pytest.mark.parametrize("acknowledged", [True, False])
async def test_an_envelope_that_is_with_its_device_is_not_refused_because_the_mailbox_cannot_hold_it(
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


async def test_of_a_mailbox_with_large_envelopes_little_more_is_read_than_is_delivered() -> None:
    class Counting(SlowMailbox):
        read = pages = 0

        async def list_page(
            self, recipient: str, *, after: int, now: int, limit: int, slots: Sequence[int] | None
        ) -> Sequence[Envelope]:
            page = await super().list_page(recipient, after=after, now=now, limit=limit, slots=slots)
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
        # One at a time: each acknowledgement makes room.
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
def test_an_envelope_takes_less_than_twice_the_bytes_that_it_counts_for(
    as_json: bool, body: int, refs: int, ref: str, words: str
) -> None:
    number = "9" * 15
    send = device.Send(1, number, number, words or "a", device.DELIVERED, bytes(body), [ref] * refs, 0, words, "g" * 32)
    size = mailbox.size_of(send.body, send.refs)
    transit = from_send(Sender(), send, DeliveryQueue(number, 1), size=size, seq=1, now=2**45, ttl=1, due=0)
    transit.frame.n = 2**50
    encoder = msgspec.json.encode if as_json else msgspec.msgpack.encode
    assert 4 + len(encoder(transit.frame)) < 2 * transit.size
