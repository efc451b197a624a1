"""The router against thousands of random histories: logins, disconnects, slow devices, a slow mailbox, notices."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence

import pytest

from network.lanes import Lane
from network.router import Router
from network.sequence import Sequence as Numbers
from network.settings import Limits
from tidings.runtime.clock import ManualClock
from tidings.storage.mailbox import Envelope
from tidings.wire import device


class SlowMailbox:
    """A mailbox in memory that takes a random number of turns of the loop for everything."""

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

    async def list_page(self, recipient: str, *, after: int, now: int, limit: int) -> Sequence[Envelope]:
        await self.pause()
        rows = sorted((row.seq, row) for row in self.rows.values() if row.recipient == recipient and row.seq > after)
        await self.pause()
        return [row for _, row in rows[:limit]]

    async def last_seq(self) -> int:
        return max(self.rows, default=0)


class Everybody:
    """A directory in which all numbers are registered."""

    def get(self, number: str) -> frozenset[str] | None:
        return frozenset()

    def look_up(self, number: str) -> asyncio.Future[frozenset[str] | None]:
        raise AssertionError


class Device:
    """A connection with one device, which keeps what it was sent."""

    def __init__(self, log: list[str]) -> None:
        self.deliveries: dict[int, Lane] = {}
        self.received: list[tuple[int, str]] = []
        self.reason: str | None = None
        self.log = log

    def deliver(self, frame: device.Deliver, lane: Lane) -> int:
        assert self.reason is None
        n = len(self.received) + 1
        self.received.append((n, frame.id))
        self.log.append(frame.id)
        self.deliveries[n] = lane
        return n

    def detached(self, number: str, reason: str) -> None:
        self.reason = reason


class Sender:
    def __init__(self) -> None:
        self.accepted_numbers: list[int] = []
        self.refusals: list[tuple[int, str]] = []

    def accepted(self, n: int) -> None:
        self.accepted_numbers.append(n)

    def refused(self, n: int, reason: str, detail: str = "") -> None:
        self.refusals.append((n, reason))


RECIPIENT = "15550000002"


@pytest.mark.parametrize("seed", range(100))
async def test_whatever_happens_every_envelope_arrives_and_each_connection_sees_the_order(seed: int) -> None:
    rng = random.Random(seed)
    clock = ManualClock()
    store = SlowMailbox(rng)
    limits = Limits(window=rng.choice([1, 3, 10]), held=rng.choice([1, 4, 20]))
    numbers = Numbers(clock, 0)
    router = Router(store, Everybody(), numbers, clock, limits, ttl=3600)
    sender = Sender()
    connections: list[Device] = []
    delivered: list[str] = []
    arrivals: dict[str, int] = {}
    acknowledged: set[str] = set()
    sent = notices = 0
    running: set[asyncio.Task[None]] = set()

    async def notice(id: str) -> None:
        arrivals[id] = seq = router.reserve(RECIPIENT)
        await store.pause()
        store.rows[seq] = Envelope(seq, RECIPIENT, "15550000003", id, device.IDENTITY, 0, 2**60, b"", [])
        await store.pause()
        router.release(RECIPIENT, seq)

    def acknowledge(count: int) -> None:
        connection = connections[-1]
        waiting = [entry for entry in connection.received if entry[0] in connection.deliveries]
        if rng.random() < 0.2:
            rng.shuffle(waiting)
        chosen = waiting[:count]
        acknowledged.update(id for _, id in chosen)
        router.acked(connection, [n for n, _ in chosen])

    def login() -> None:
        connections.append(Device(delivered))
        router.attach(RECIPIENT, connections[-1])

    for _ in range(400):
        action = rng.random()
        online = bool(connections) and connections[-1].reason is None
        if action < 0.45:
            for _ in range(rng.choice([1, 1, 1, 8])):
                sent += 1
                id = f"m{sent}"
                router.send(sender, device.Send(n=sent, sender="15550000001", to=RECIPIENT, id=id, kind="message"))
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
            task = asyncio.create_task(notice(f"notice{notices}"))
            running.add(task)
            task.add_done_callback(running.discard)
        for _ in range(rng.randrange(4)):
            await asyncio.sleep(0)

    # A connection that lives on must get everything too, without another login to help it.
    if not connections or connections[-1].reason is not None:
        login()
    everything = {f"m{i + 1}" for i in range(sent)} | {f"notice{i + 1}" for i in range(notices)}
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
    assert router._lanes == {}, "nothing is kept of a recipient that is gone"
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

    router = Router(store, Everybody(), Numbers(clock, 0), clock, Limits(window=5, held=5), ttl=3600)
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
