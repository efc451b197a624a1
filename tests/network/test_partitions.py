"""Device that is logged in in partitions: each envelope goes to the partition of its sender's number."""

from __future__ import annotations

import asyncio
import random

import pytest

from network.routing.router import Router
from network.routing.sequence import SequenceNumbers
from network.settings import Limits
from tests.manual_clock import ManualClock
from tests.network.router_support import Device, Everybody, Sender, SlowMailbox, known
from tidings.storage.network.mailbox import Envelope
from tidings.wire import addresses, device
from tidings.wire.device import Partition

BUSINESS = "15550000002"
PEERS = [f"1555012{n:04}" for n in range(40)]
GROUP = f"{BUSINESS}-1767225600"


class Part(Device):
    """Connection of one partition. It checks that it is sent only what belongs to it."""

    def __init__(self, log: list[str], part: Partition, limits: Limits | None = None) -> None:
        super().__init__(log, limits)
        self.part = part

    def deliver(self, frame: device.Deliver, queue: object) -> int:
        assert hash_slot_of(frame) % self.part.partitions == self.part.partition
        return super().deliver(frame, queue)  # type: ignore[arg-type]


def hash_slot_of(frame: device.Deliver | device.Send) -> int:
    """Return the hash slot of a frame as docs/device-api.md defines it."""
    of_group = frame.group and frame.kind in ("group", "group_changed", "delivered", "read")
    return 0 if of_group else addresses.hash_slot_of(frame.sender)


def make_router(store: SlowMailbox, clock: ManualClock, limits: Limits | None = None) -> tuple[Router, SequenceNumbers]:
    numbers = SequenceNumbers(clock, 0)
    router = Router(store, Everybody(), known(store), numbers=numbers, clock=clock, limits=limits or Limits(), ttl=3600)
    return router, numbers


async def settled() -> None:
    for _ in range(30):
        await asyncio.sleep(0)


class History:
    """Random history: peers that send, partitions that attach and detach, changes of layout, notices."""

    def __init__(self, seed: int) -> None:
        self.rng = rng = random.Random(seed)
        self.clock = ManualClock()
        self.store = SlowMailbox(rng)
        self.limits = Limits(
            window=rng.choice([1, 3, 10]),
            held=rng.choice([1, 4, 20]),
            window_bytes=rng.choice([1, 2000, 10_000_000]),
            session_bytes=rng.choice([1, 2000, 10_000_000]),
        )
        self.router, self.numbers = make_router(self.store, self.clock, self.limits)
        self.sender = Sender()
        self.layout, self.partitions = 0, 1
        # Attached parts, by partition of the present layout.
        self.here: dict[int, Part] = {}
        self.all: list[Part] = []
        self.delivered: list[str] = []
        self.arrivals: dict[str, int] = {}
        self.hash_slots: dict[str, int] = {}
        self.acknowledged: set[str] = set()
        self.sent = self.notices = 0
        self.running: set[asyncio.Task[None]] = set()

    def send(self) -> None:
        self.sent += 1
        id, peer = f"m{self.sent}", self.rng.choice(PEERS)
        kind, group = self.rng.choice(
            [("message", ""), ("message", GROUP), ("delivered", ""), ("read", GROUP), ("retry", GROUP)]
        )
        body = bytes(self.rng.choice([0, self.rng.randrange(3000)]))
        frame = device.Send(self.sent, peer, BUSINESS, id, kind, body, group=group)
        self.hash_slots[id] = hash_slot_of(frame)
        self.router.send(self.sender, frame)
        # This runs between the assignment of this number and of the next.
        self.arrivals[id] = self.numbers.next()

    async def notice(self, id: str, peer: str, kind: str) -> None:
        group = GROUP if kind == device.GROUP_CHANGED else ""
        hash_slot = device.hash_slot_of(peer, kind, group)
        self.hash_slots[id] = hash_slot
        self.arrivals[id] = seq = self.router.reserve(BUSINESS, hash_slot)
        await self.store.pause()
        row = Envelope(seq, peer, id, 0, 2**60, b"", [], group=group, recipient=BUSINESS, kind=kind, slot=hash_slot)
        self.store.rows[seq] = row
        await self.store.pause()
        self.router.release(BUSINESS, hash_slot, seq, self.rng.choice([None, row]))

    def log_in(self, partition: int) -> None:
        part = Partition(partition, self.partitions, self.layout)
        assert not self.router.is_stale_login(BUSINESS, 0, part)
        self.here[partition] = connection = Part(self.delivered, part, self.limits)
        self.all.append(connection)
        self.router.attach(BUSINESS, connection, 0, part)
        there = {other.part for other in self.all if other.reason is None}
        assert {(part.layout, part.partitions) for part in there} == {(self.layout, self.partitions)}

    def divide(self) -> None:
        former = Partition(0, self.partitions, self.layout)
        self.layout += 1
        self.partitions = self.rng.choice(addresses.COUNTS)
        self.here = {}
        self.log_in(self.rng.randrange(self.partitions))
        assert self.router.is_stale_login(BUSINESS, 0, former)

    def acknowledge(self, count: int) -> None:
        for connection in list(self.here.values()):
            if connection.reason is None:
                waiting = [entry for entry in connection.received if entry[0] in connection.deliveries]
                chosen = self.rng.sample(waiting, min(count, len(waiting)))
                self.acknowledged.update(id for _, id in chosen)
                self.router.acked(connection, [n for n, _ in chosen])

    def leave(self) -> None:
        partition = self.rng.choice(list(self.here))
        connection = self.here.pop(partition)
        if connection.reason is None:
            self.router.detach(BUSINESS, connection)

    def begin_notice(self) -> None:
        self.notices += 1
        kind = self.rng.choice([device.IDENTITY, device.EXPIRED, device.GROUP_CHANGED])
        task = asyncio.create_task(self.notice(f"notice{self.notices}", self.rng.choice(PEERS), kind))
        self.running.add(task)
        task.add_done_callback(self.running.discard)

    async def run(self) -> None:
        rng = self.rng
        for _ in range(400):
            action = rng.random()
            if action < 0.45:
                for _ in range(rng.choice([1, 1, 1, 8])):
                    self.send()
            elif action < 0.65:
                self.acknowledge(rng.choice([1, 2, 100]))
            elif action < 0.75:
                self.log_in(rng.randrange(self.partitions))
            elif action < 0.80 and self.here:
                self.leave()
            elif action < 0.84:
                self.divide()
            elif action < 0.90:
                self.clock.advance(rng.choice([0.2, 1.0]))
                self.router.sweep()
            elif action < 0.94:
                self.begin_notice()
            for _ in range(rng.randrange(4)):
                await asyncio.sleep(0)


@pytest.mark.parametrize("seed", range(60))
async def test_envelopes_reach_their_partition_in_order_through_any_layout_changes(
    seed: int,
) -> None:
    history = History(seed)
    await history.run()
    # Attached partitions must get everything without another login.
    for partition in range(history.partitions):
        if partition not in history.here or history.here[partition].reason is not None:
            history.log_in(partition)
    everything = {f"m{i + 1}" for i in range(history.sent)} | {f"notice{i + 1}" for i in range(history.notices)}
    for turn in range(20_000):
        history.acknowledge(100)
        if turn == 500:
            history.store.slowness = 1
        await asyncio.sleep(0)
        done = history.acknowledged == everything and not history.store.rows
        if done and len(history.sender.accepted_numbers) == history.sent:
            break
    assert history.acknowledged == everything
    assert sorted(history.sender.accepted_numbers) == list(range(1, history.sent + 1))
    assert history.store.rows == {}
    assert history.router.undecided == 0
    for connection in history.all:
        seen = [id for _, id in connection.received]
        assert len(seen) == len(set(seen)), "once for each connection"
        assert seen == sorted(seen, key=history.arrivals.__getitem__), "in the order of arrival"
    for hash_slot in set(history.hash_slots.values()):
        first = list(dict.fromkeys(id for id in history.delivered if history.hash_slots[id] == hash_slot))
        assert first == sorted(first, key=history.arrivals.__getitem__), "nothing overtakes, whoever it is delivered to"
    for connection in history.here.values():
        history.router.detach(BUSINESS, connection)
    assert history.router.online == 0
    await settled()
    assert history.router.recipients == 0, "nothing is kept of a recipient that is gone"
    await history.router.close()


def peer_in(partition: int, partitions: int) -> str:
    return next(peer for peer in PEERS if addresses.shard_of(peer, partitions) == partition)


async def test_envelopes_stored_in_one_layout_are_delivered_by_the_next() -> None:
    store = SlowMailbox(random.Random(1))
    store.slowness = 1
    router, _ = make_router(store, ManualClock())
    sender = Sender()
    first = [Part([], Partition(n, 2, 1)) for n in range(2)]
    for connection in first:
        router.attach(BUSINESS, connection, 1, connection.part)
    await settled()
    for n, peer in enumerate(PEERS, 1):
        router.send(sender, device.Send(n, peer, BUSINESS, f"m{n}", "message"))
    assert sorted(id for connection in first for _, id in connection.received) == sorted(
        f"m{n}" for n in range(1, len(PEERS) + 1)
    )
    # One partition of another layout is enough: those of the former layout no longer stand for this device.
    second = [Part([], Partition(n, 8, 2)) for n in range(8)]
    router.attach(BUSINESS, second[3], 1, second[3].part)
    assert [connection.reason for connection in first] == [device.REPLACED] * 2
    for connection in second:
        if connection is not second[3]:
            router.attach(BUSINESS, connection, 1, connection.part)
    await settled()
    for connection in second:
        seen = [PEERS[int(id[1:]) - 1] for _, id in connection.received]
        assert seen == [peer for peer in PEERS if addresses.shard_of(peer, 8) == connection.part.partition]
        router.acked(connection, [n for n, _ in connection.received])
    await settled()
    assert (store.rows, len(sender.accepted_numbers)) == ({}, len(PEERS))
    await router.close()


async def test_an_absent_partition_does_not_delay_others() -> None:
    store = SlowMailbox(random.Random(1))
    store.slowness = 1
    router, _ = make_router(store, ManualClock())
    sender = Sender()
    there = Part([], Partition(1, 2, 1))
    router.attach(BUSINESS, there, 1, there.part)
    await settled()
    router.send(sender, device.Send(1, peer_in(0, 2), BUSINESS, "m1", "message"))
    router.send(sender, device.Send(2, peer_in(1, 2), BUSINESS, "m2", "message"))
    assert [id for _, id in there.received] == ["m2"], "at once, while the other one is on its way to the mailbox"
    await settled()
    assert sender.accepted_numbers == [1]
    assert router.online == 1
    other = Part([], Partition(0, 2, 1))
    router.attach(BUSINESS, other, 1, other.part)
    await settled()
    assert [id for _, id in other.received] == ["m1"]
    assert router.online == 1, "one device"
    await router.close()


async def test_epochs_are_per_partition_and_layouts_per_device() -> None:
    router, _ = make_router(SlowMailbox(random.Random(1)), ManualClock())
    zero, one = Part([], Partition(0, 2, 5)), Part([], Partition(1, 2, 5))
    router.attach(BUSINESS, zero, 7, zero.part)
    router.attach(BUSINESS, one, 3, one.part)

    def is_stale(epoch: int, *part: int) -> bool:
        return router.is_stale_login(BUSINESS, epoch, Partition(*part))

    assert is_stale(6, 0, 2, 5)
    assert not is_stale(7, 0, 2, 5)
    assert is_stale(2, 1, 2, 5)
    assert not is_stale(6, 1, 2, 5)
    assert not is_stale(0, 1, 2, 5), "without an epoch nothing is stale"
    assert is_stale(99, 0, 2, 4)
    assert is_stale(99, 0, 1, 4)
    assert is_stale(0, 0, 1, 0), "the whole device has the lowest layout"
    assert not is_stale(1, 3, 4, 6), "a higher one begins anew"
    # Changes of registrations and keys are checked against the first partition's epoch, whatever the layout.
    assert router.is_stale(BUSINESS, 6)
    assert not router.is_stale(BUSINESS, 7)
    router.detach(BUSINESS, zero)
    assert not router.is_stale(BUSINESS, 1)
    assert is_stale(99, 0, 2, 4)
    router.detach(BUSINESS, one)
    assert not is_stale(1, 0, 2, 4), "known only while somebody is logged in"
    await router.close()


async def test_an_invalidated_token_expels_every_partition() -> None:
    router, _ = make_router(SlowMailbox(random.Random(1)), ManualClock())
    parts = [Part([], Partition(n, 4, 1)) for n in range(4)]
    for connection in parts:
        router.attach(BUSINESS, connection, 1, connection.part)
    router.expel(BUSINESS, device.REPLACED)
    assert [connection.reason for connection in parts] == [device.REPLACED] * 4
    assert router.online == 0
    await router.close()


def test_only_valid_partition_counts_are_accepted() -> None:
    valid = [part for count in range(40) for n in range(-1, 40) if (part := Partition(n, count)).is_valid]
    assert [part.partitions for part in valid] == [count for count in addresses.COUNTS for _ in range(count)]
    assert not Partition(0, 1, -1).is_valid
    assert not Partition(0, 1, device.MAX_LAYOUT + 1).is_valid
