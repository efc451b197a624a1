"""The router in thousands of random histories: logins, disconnects, slow devices, a slow mailbox, notices."""

from __future__ import annotations

import asyncio
import random

import pytest

from network.routing.router import Router
from network.routing.sequence import SequenceNumbers
from network.settings import Limits, Quotas
from tests.manual_clock import ManualClock
from tests.network.router_support import Device, Everybody, Sender, SlowMailbox, drawn_limits, known
from tidings.storage.network.group_messages import StoredGroupMessage
from tidings.storage.network.mailbox import Envelope
from tidings.wire import addresses, device

RECIPIENT = "15550000002"
GROUP = "15550000003-5"


@pytest.mark.parametrize("seed", range(100))
async def test_every_envelope_arrives_in_order_on_each_connection_in_random_histories(seed: int) -> None:
    rng = random.Random(seed)
    clock = ManualClock()
    store = SlowMailbox(rng)
    limits = drawn_limits(rng, 1, 2000, 10_000, 10_000_000)
    numbers = SequenceNumbers(clock, 0)
    router = Router(store, Everybody(), known(store), numbers=numbers, clock=clock, limits=limits, ttl=3600)
    sender = Sender()
    connections: list[Device] = []
    delivered: list[str] = []
    arrivals: dict[str, int] = {}
    acknowledged: set[str] = set()
    # Group messages: those kept for copies in memory, and those whose transaction failed.
    kept: set[int] = set()
    given_back: set[str] = set()
    router.live.on_decided = kept.remove
    sent = notices = copies = 0
    running: set[asyncio.Task[None]] = set()

    def body() -> bytes:
        return bytes(rng.choice([0, rng.randrange(200), rng.randrange(10_000)]))

    async def notice(id: str) -> None:
        hash_slot = addresses.hash_slot_of("15550000003")
        arrivals[id] = seq = router.reserve(RECIPIENT, hash_slot)
        await store.pause()
        store.rows[seq] = Envelope(
            seq, "15550000003", id, 0, 2**60, body(), [], recipient=RECIPIENT, kind=device.IDENTITY
        )
        stored = store.rows[seq]
        await store.pause()
        router.release(RECIPIENT, hash_slot, seq, rng.choice([None, stored]))

    async def copy(id: str) -> None:
        """Send a copy of a group message whose transaction may fail. It is stored when the recipient is not
        attached."""
        data = body()
        seq = router.live.reserve(RECIPIENT)
        if not seq:
            await notice(id)
            return
        arrivals[id] = seq
        await store.pause()
        if rng.random() < 0.1:
            router.live.cancel(RECIPIENT, seq)
            given_back.add(id)
        else:
            kept.add(seq)
            message = StoredGroupMessage(
                seq, "15550000003", id, 0, 2**60, data, [], group=GROUP, copies={RECIPIENT: seq}
            )
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
                # This runs between the assignment of this number and of the next.
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

    # A connection that stays open must also get everything, without another login.
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


async def test_accepted_always_means_acknowledged_or_stored() -> None:
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
