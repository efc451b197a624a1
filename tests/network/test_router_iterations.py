"""Devices that share a connection are served in round robin."""

from __future__ import annotations

import asyncio
import itertools
import random

import pytest

from network.routing.router import Router
from network.routing.sequence import SequenceNumbers
from network.settings import Limits
from tests.manual_clock import ManualClock
from tests.network.router_support import Everybody, Fleet, Sender, SlowMailbox, drawn_limits, known
from tidings.wire import device


@pytest.mark.parametrize("seed", range(50))
async def test_devices_on_one_connection_alternate_and_receive_everything_in_order(seed: int) -> None:
    rng = random.Random(seed)
    clock = ManualClock()
    store = SlowMailbox(rng)
    limits = drawn_limits(rng, 1, 2000, 10_000)
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


async def test_a_waiting_device_is_served_before_a_busier_one() -> None:
    clock = ManualClock()
    # Windows for 3 and for 4 envelopes of 1,000 bytes.
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
    # Nothing is sent until half of the connection's window is free, whatever arrives before that.
    router.acked(connection, [1])
    send(greedy)
    assert len(connection.received) == 4
    router.acked(connection, [2])
    assert [to for _, to, _ in connection.received[4:]] == [patient, patient]
    await router.close()


async def test_a_device_that_moves_receives_its_backlog_on_the_new_connection_only() -> None:
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
