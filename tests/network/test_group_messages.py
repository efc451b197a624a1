"""A message to a group is copied for each participant: for all of them or for none."""

from __future__ import annotations

import asyncio
import json

import sqlalchemy as sa

from network.settings import Limits
from tests.manual_clock import ManualClock
from tests.network.group_support import changes, done, group_send, make, pair_in_group, refusal
from tests.network.support import ALICE, BOB, CAROL, DAVE, TIMEOUT, Network, ids, stored
from tidings.storage.network import groups
from tidings.wire import device


async def test_every_other_participant_receives_a_copy_online_or_offline(network: Network) -> None:
    clock = ManualClock()
    await network.start(clock=clock)
    await network.register(ALICE, BOB, CAROL)
    group = await make(network, ALICE, BOB, CAROL)
    alice, bob = await network.connect(ALICE), await network.connect(BOB)
    await changes(alice, 3)
    await changes(bob, 2)
    sent = [group_send(alice, ALICE, group, f"m{i}", 3, body=bytes([i]), trace="t-1") for i in range(5)]
    assert await alice.accepted(5) == sent
    deliveries = await bob.deliveries(5)
    assert [(d.id, d.body, d.kind, d.sender, d.to, d.group, d.trace) for d in deliveries] == [
        (f"m{i}", bytes([i]), device.GROUP, ALICE, BOB, group, "t-1") for i in range(5)
    ]
    assert {d.timestamp for d in deliveries} == {int(clock.now() * 1000)}
    bob.ack(*deliveries)
    await bob.nothing_came()
    carol = await network.connect(CAROL)
    await changes(carol, 1)
    carol.ack(*await carol.deliveries(5))
    await carol.nothing_came()
    await alice.nothing_came()
    await network.stop()
    assert await stored(network) == []


async def test_group_messages_private_ones_and_changes_arrive_in_accepted_order(
    network: Network,
) -> None:
    await network.start()
    group, alice, bob = await pair_in_group(network)
    for i in range(20):
        alice.send(ALICE, BOB, f"key{i}")
        group_send(alice, ALICE, group, f"m{i}", 2)
        bob.ack(*(await bob.deliveries(2)))
        await alice.accepted(2)
    await done(network, "PUT", ALICE, f"/{group}", {"subject": "After it"})
    await changes(bob, 1)
    await bob.nothing_came()


async def test_a_stale_epoch_a_non_member_and_an_unknown_group_are_refused(network: Network) -> None:
    await network.start()
    await network.register(ALICE, BOB, CAROL)
    group = await make(network, ALICE, BOB)
    carol = await network.connect(CAROL)
    group_send(carol, CAROL, group, "x", 2)
    assert await refusal(carol) == device.NOT_PARTICIPANT
    for nothing in ("15550000001-5", "nonsense", "1555000ü-5"):
        group_send(carol, CAROL, nothing, "x", 2)
        assert await refusal(carol) == device.NO_SUCH_GROUP
    carol.send(CAROL, ALICE, "x", group="nonsense")
    assert await refusal(carol) == device.INVALID
    bob = await network.connect(BOB)
    await changes(bob, 1)
    for epoch in (0, 1, 3):
        group_send(bob, BOB, group, "x", epoch)
        assert await refusal(bob) == device.STALE_GROUP
    # Nothing of it was kept, so the id may be used with the right epoch. From then on it is a known id.
    n = group_send(bob, BOB, group, "x", 2)
    assert await bob.accepted(1) == [n]
    await done(network, "DELETE", BOB, f"/{group}")
    await changes(bob, 1)
    again = group_send(bob, BOB, group, "x", 2)
    assert await bob.accepted(1) == [again]
    group_send(bob, BOB, group, "y", 3)
    assert await refusal(bob) == device.NOT_PARTICIPANT


async def test_a_repeated_message_is_dropped_even_after_a_restart(
    network: Network,
) -> None:
    await network.start()
    group, alice, bob = await pair_in_group(network)
    sent = [group_send(alice, ALICE, group, "once", 2) for _ in range(3)]
    assert sorted(await alice.accepted(3)) == sent
    bob.ack(*await bob.deliveries(1))
    await bob.nothing_came()
    await alice.close()
    await bob.close()
    await network.stop()
    assert await stored(network) == []

    await network.start()
    alice, bob = await network.connect(ALICE), await network.connect(BOB)
    n = group_send(alice, ALICE, group, "once", 2)
    assert await alice.accepted(1) == [n]
    # Another sender's message may have the same id.
    group_send(bob, BOB, group, "once", 2)
    await bob.accepted(1)
    assert ids(await alice.deliveries(1)) == ["once"]
    await bob.nothing_came()


async def test_removed_members_and_members_who_blocked_the_author_receive_no_copy(network: Network) -> None:
    await network.start()
    await network.register(ALICE, BOB, CAROL, DAVE)
    group = await make(network, ALICE, BOB, CAROL, DAVE)
    alice, bob = await network.connect(ALICE), await network.connect(BOB)
    await changes(alice, 4)
    await changes(bob, 3)
    await network.request("PUT", f"/v1/blocks/{CAROL}/{ALICE}", token=network.tokens[CAROL])
    await done(network, "DELETE", ALICE, f"/{group}/participants", {"numbers": [BOB]})
    await changes(alice, 1)
    group_send(alice, ALICE, group, "late", 4)
    assert await refusal(alice) == device.STALE_GROUP
    group_send(alice, ALICE, group, "m1", 5)
    await alice.accepted(1)
    assert [notice["change"] for notice in await changes(bob, 1)] == ["removed"]
    await bob.nothing_came()
    carol, dave = await network.connect(CAROL), await network.connect(DAVE)
    await changes(carol, 3)
    await carol.nothing_came()
    await changes(dave, 2)
    assert ids(await dave.deliveries(1)) == ["m1"]
    # Dave's messages still arrive: he is not blocked.
    group_send(dave, DAVE, group, "m2", 5)
    await dave.accepted(1)
    assert ids(await carol.deliveries(1)) == ["m2"]


async def test_an_expired_copy_causes_no_notice_and_its_repetition_is_a_duplicate(network: Network) -> None:
    clock = ManualClock()
    await network.start(clock=clock, message_ttl=7200, expiry_interval=0.05)
    group, alice, bob = await pair_in_group(network)
    await bob.close()
    group_send(alice, ALICE, group, "short", 2, ttl=10)
    alice.send(ALICE, BOB, "private", ttl=10)
    await alice.accepted(2)
    clock.advance(11)
    (notice,) = await alice.deliveries(1)
    assert (notice.kind, notice.refs) == (device.EXPIRED, ["private"])
    alice.ack(notice)
    bob = await network.connect(BOB)
    await bob.nothing_came()
    group_send(alice, ALICE, group, "short", 2)
    await alice.accepted(1)
    await bob.nothing_came()
    clock.advance(7200)
    alice.send(ALICE, BOB, "private-2", ttl=1)
    bob.ack(*await bob.deliveries(1))
    await alice.accepted(1)
    async with asyncio.timeout(TIMEOUT):
        while await _remembered(network):
            await alice.nothing_came()


async def _remembered(network: Network) -> int:
    async with network.reading() as connection:
        query = sa.select(sa.func.count()).select_from(groups.sends)
        return int((await connection.execute(query)).scalar_one())


async def test_receipts_name_the_group_of_their_messages(network: Network) -> None:
    await network.start()
    await network.register(ALICE, BOB)
    alice = await network.connect(ALICE)
    for kind, to in [(device.DELIVERED, BOB), (device.READ, ALICE)]:
        alice.send(ALICE, to, f"r-{kind}", kind=kind, body=b"", refs=["m1"], group="15550000001-5")
    # One of two nodes may accept a receipt before it delivers it.
    accepted: list[device.Accepted] = []
    delivered: list[device.Deliver] = []
    while len(accepted) < 2 or not delivered:
        frame = await alice.next_frame()
        if isinstance(frame, device.Accepted):
            accepted += frame.n
        else:
            delivered.append(frame)
    (live,) = delivered
    assert isinstance(live, device.Deliver)
    assert (live.kind, live.group, live.refs) == (device.READ, "15550000001-5", ["m1"])
    alice.ack(live)
    bob = await network.connect(BOB)
    (kept,) = await bob.deliveries(1)
    assert (kept.kind, kept.group, kept.refs) == (device.DELIVERED, "15550000001-5", ["m1"])


async def test_copies_beyond_the_window_wait_in_order(network: Network) -> None:
    await network.start(limits=Limits(window=3))
    group, alice, bob = await pair_in_group(network)
    expected = []
    for i in range(10):
        group_send(alice, ALICE, group, f"m{i}", 2)
        alice.send(ALICE, BOB, f"p{i}")
        expected += [f"m{i}", f"p{i}"]
    seen: list[str] = []
    while len(seen) < 20:
        (delivery,) = await bob.deliveries(1)
        seen.append(delivery.id)
        bob.ack(delivery)
    await bob.nothing_came()
    assert sorted(seen) == sorted(expected)
    assert [id_ for id_ in seen if id_.startswith("m")] == [f"m{i}" for i in range(10)]
    assert [id_ for id_ in seen if id_.startswith("p")] == [f"p{i}" for i in range(10)]


async def test_messages_keep_their_position_between_group_changes(
    network: Network,
) -> None:
    await network.start()
    await network.register(ALICE, BOB, CAROL, DAVE)
    group = await make(network, ALICE, CAROL)
    code = (await done(network, "GET", ALICE, f"/{group}/invite"))["code"]
    alice, bob, carol = [await network.connect(number) for number in (ALICE, BOB, CAROL)]

    async def come_and_go() -> None:
        for _ in range(8):
            await done(network, "POST", BOB, "/join", {"code": code})
            await done(network, "DELETE", ALICE, f"/{group}/participants", {"numbers": [BOB]})

    async def talk() -> int:
        """Send messages while others join, each with the epoch it was sent for; return how many were accepted."""
        taken, epoch = 0, 2
        while not coming.done():
            alice.link.send(
                device.Send(1000 + taken, ALICE, group, f"m{taken}", device.GROUP, b"%d" % epoch, epoch=epoch)
            )
            while True:
                frame = await alice.next_frame()
                if isinstance(frame, device.Accepted):
                    taken += 1
                    break
                if isinstance(frame, device.Refused):
                    assert frame.reason == device.STALE_GROUP
                    epoch = (await done(network, "GET", ALICE, f"/{group}"))["epoch"]
                    break
        return taken

    coming = asyncio.create_task(come_and_go())
    taken = await talk()
    await coming
    last = (await done(network, "GET", ALICE, f"/{group}"))["epoch"]

    for client, number in ((carol, CAROL), (bob, BOB)):
        epoch, inside, read = 0, False, 0
        # A message may have been accepted after the last change.
        while epoch < last or (number == CAROL and read < taken):
            (delivery,) = await client.deliveries(1)
            client.ack(delivery)
            if delivery.kind == device.GROUP_CHANGED:
                notice = json.loads(delivery.body)
                epoch = notice["epoch"]
                if number in notice["numbers"]:
                    inside = notice["change"] == "joined"
            else:
                assert inside
                assert int(delivery.body) == epoch
                read += 1
        assert read <= taken
        await client.nothing_came()
