"""Groups of phones on a real network: each participant reads each message once, and no other phone can."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from handset.devices.context import FleetLimits
from handset.devices.row_sealer import RowSealer
from tests.handset.conftest import HANDSET_KEY, LiveNetwork
from tests.handset.people import ADA, BOB, CID, DOT, Person, meet
from tidings import e2ee
from tidings.client.errors import NoSuchGroup
from tidings.storage.handset import groups as handset_groups
from tidings.storage.handset import inbox
from tidings.wire import content
from tidings.wire import device as wire

MakePerson = Callable[[str], Person]


@pytest.fixture
def person(live_network: LiveNetwork, tmp_path: Path) -> MakePerson:
    return lambda number: Person(number, live_network, tmp_path)


@contextlib.asynccontextmanager
async def phones(*people: Person) -> AsyncIterator[None]:
    async with contextlib.AsyncExitStack() as stack:
        for each in people:
            await stack.enter_async_context(each.phone())
        yield


async def received(who: Person) -> list[inbox.InboxRow]:
    database = who.database
    try:
        async with database.reading() as connection:
            rows = await inbox.list_messages(connection, "phone", 0, 1000)
    finally:
        await database.close()
    sealer = RowSealer(HANDSET_KEY)
    return [dataclasses.replace(m, content=sealer.open_text(m.number, m.peer, m.id, m.content)) for m in rows]


async def test_a_group_message_is_read_by_all_members_and_acknowledged_by_receipts(person: MakePerson) -> None:
    ada, bob, cid = person(ADA), person(BOB), person(CID)
    async with phones(ada, bob, cid):
        group = await meet(ada, bob, cid)
        first = await ada.write(group, "Hello all")
        await bob.until_read("Hello all")
        await cid.until_read("Hello all")
        assert (bob.messages[0].peer, bob.messages[0].group, bob.messages[0].id) == (ADA, group, first)
        expected = {(who, what) for who in (BOB, CID) for what in ("delivered", "read")}
        await ada.until(lambda: set(ada.events(first)) == expected)
        assert {notice.group for notice in ada.notices if first in notice.refs} == {group}
        await bob.write(group, "Hello Ada")
        await ada.until_read("Hello Ada")
        await cid.until_read("Hello all", "Hello Ada")
        # Messages about keys are never shown, and their secrets are not in the inbox.
        kinds = [(message.kind, message.content) for message in await received(cid)]
        assert kinds.count((inbox.CONTROL, "")) == 2
        assert {kind for kind, _ in kinds} == {inbox.CONTROL, inbox.TEXT}


async def test_the_sender_key_is_distributed_once_per_member(person: MakePerson) -> None:
    ada, bob, cid = person(ADA), person(BOB), person(CID)
    async with phones(ada, bob, cid):
        group = await meet(ada, bob, cid)
        for n in range(5):
            await ada.write(group, f"{n}")
        await bob.until_read("0", "1", "2", "3", "4")
        await cid.until_read("0", "1", "2", "3", "4")
        for who in (bob, cid):
            assert [message.kind for message in await received(who)] == [inbox.CONTROL, *[inbox.TEXT] * 5]


async def test_many_concurrent_messages_are_all_read(person: MakePerson) -> None:
    ada, bob = person(ADA), person(BOB)
    async with phones(ada, bob):
        group = await meet(ada, bob)
        await asyncio.gather(*(ada.write(group, f"{n}") for n in range(30)))
        await bob.until(lambda: len(bob.messages) == 30)
        assert sorted(int(message.text) for message in bob.messages) == list(range(30))
        assert [message.kind for message in await received(bob)].count(inbox.CONTROL) == 1


async def test_an_offline_phone_reads_later_and_a_sender_may_be_disconnected(
    person: MakePerson, live_network: LiveNetwork
) -> None:
    ada, bob = person(ADA), person(BOB)
    async with phones(ada, bob):
        group = await meet(ada, bob)
        await ada.write(group, "one")
        await bob.until_read("one")
    async with ada.phone():
        await ada.write(group, "two")
        await ada.fleet.wait_until_sent()
        await live_network.stop()
        # All participants have the key, so the message is safe in the outbox.
        await ada.write(group, "three")
    await live_network.start()
    async with phones(ada, bob):
        await bob.until_read("one", "two", "three")


async def test_a_new_member_reads_messages_after_joining(person: MakePerson) -> None:
    ada, bob, cid = person(ADA), person(BOB), person(CID)
    async with phones(ada, bob, cid):
        group = await meet(ada, bob)
        await ada.write(group, "before")
        await bob.until_read("before")
        code = await ada.fleet.groups.get_code(ADA, group)
        # Ada has no notice of the join when she sends: the network reports that the group has changed.
        await cid.fleet.groups.join(CID, code)
        await ada.write(group, "after")
        await cid.until_read("after")
        await bob.until_read("before", "after")
        assert [message.kind for message in await received(bob)].count(inbox.CONTROL) == 1


async def test_a_message_queued_while_the_group_changed_is_encrypted_again(
    person: MakePerson, live_network: LiveNetwork
) -> None:
    ada, bob, cid = person(ADA), person(BOB), person(CID)
    async with phones(ada, bob, cid):
        group = await meet(ada, bob)
        code = await ada.fleet.groups.get_code(ADA, group)
        await ada.write(group, "one")
        await bob.until_read("one")
        await ada.fleet.wait_until_sent()
        await live_network.stop()
        message_id = await ada.write(group, "two")
    await live_network.start()
    async with cid.phone():
        await cid.fleet.groups.join(CID, code)
    async with phones(ada, bob, cid):
        await bob.until_read("one", "two")
        await cid.until_read("two")
        assert cid.messages[0].id == message_id
        await ada.fleet.wait_until_sent()


async def test_an_outbox_full_of_stale_messages_is_encrypted_again(
    person: MakePerson, live_network: LiveNetwork
) -> None:
    ada, bob, cid = person(ADA), person(BOB), person(CID)
    limits = FleetLimits(outbox=3)
    async with phones(bob, cid), ada.phone(limits=limits):
        group = await meet(ada, bob)
        code = await ada.fleet.groups.get_code(ADA, group)
        await ada.write(group, "one")
        await bob.until_read("one")
        await ada.fleet.wait_until_sent()
        await live_network.stop()
        for text in ("two", "three", "four"):
            await ada.write(group, text)
    await live_network.start()
    async with cid.phone():
        await cid.fleet.groups.join(CID, code)
    async with phones(bob, cid), ada.phone(limits=limits):
        await bob.until_read("one", "two", "three", "four")
        await cid.until_read("two", "three", "four")
        await ada.write(group, "five")
        await cid.until_read("two", "three", "four", "five")


async def test_after_a_member_leaves_messages_use_a_key_unknown_to_them(person: MakePerson) -> None:
    ada, bob, cid = person(ADA), person(BOB), person(CID)
    async with phones(ada, bob, cid):
        group = await meet(ada, bob, cid)
        await ada.write(group, "one")
        await bob.until_read("one")
        await cid.until_read("one")
        database = cid.database
        async with database.reading() as connection:
            (row,) = await handset_groups.list_keys(connection, [(CID, group, ADA)])
        await database.close()
        kept = RowSealer(HANDSET_KEY).sender_key(row)
        await ada.fleet.groups.remove(ADA, group, [CID])
        await cid.until_notified("removed", CID)
        await ada.write(group, "two")
        await bob.until_read("one", "two")
        await cid.until_read("one")
        with pytest.raises(NoSuchGroup):
            await cid.write(group, "let me in")
        # The old key that Cid kept decrypts nothing under the new one.
        sealed: list[wire.Deliver] = []
        arrived = bob.fleet.arrived

        def listen(peer: object, device: object, frame: wire.Deliver) -> None:
            sealed.append(frame)
            arrived(peer, device, frame)  # type: ignore[arg-type]

        bob.fleet.arrived = listen  # type: ignore[method-assign]
        await ada.write(group, "three")
        await bob.until_read("one", "two", "three")
        (frame,) = [frame for frame in sealed if frame.kind == wire.GROUP]
        with pytest.raises(e2ee.NoSession):
            kept.decrypt(frame.body)
    # Nothing is kept of a group that the phone is not in.
    database = cid.database
    async with database.reading() as connection:
        assert await handset_groups.list_groups(connection, CID) == []
        assert await handset_groups.list_keys(connection, [(CID, group, ADA), (CID, group, CID)]) == []
    await database.close()


async def test_a_returning_member_receives_the_key_again(person: MakePerson) -> None:
    ada, bob = person(ADA), person(BOB)
    async with phones(ada, bob):
        group = await meet(ada, bob)
        await ada.write(group, "one")
        await bob.until_read("one")
        code = await ada.fleet.groups.get_code(ADA, group)
        await bob.fleet.groups.leave(BOB, group)
        await ada.until_notified("left", BOB)
        await ada.write(group, "to nobody")
        await bob.fleet.groups.join(BOB, code)
        await ada.write(group, "two")
        await bob.until_read("one", "two")


async def test_a_phone_without_the_key_requests_it_and_reads_later_messages(person: MakePerson) -> None:
    ada, bob = person(ADA), person(BOB)
    async with phones(ada, bob):
        group = await meet(ada, bob)
        await ada.write(group, "one")
        await bob.until_read("one")
    # Bob's phone has lost the key.
    database = bob.database
    async with database.transaction() as connection:
        await handset_groups.delete_key(connection, BOB, group, ADA)
    await database.close()
    async with phones(ada, bob):
        lost = await ada.write(group, "lost")
        await bob.until(lambda: any(n.kind == "undecryptable" and n.refs == (lost,) for n in bob.notices))
        await ada.until(lambda: (BOB, "delivered") not in ada.events(lost))
        async with asyncio.timeout(30):
            while True:
                keys_ = [message.kind for message in await received(bob)].count(inbox.CONTROL)
                if keys_ == 2:
                    break
        await ada.write(group, "found")
        await bob.until_read("one", "found")
        assert ada.events(lost) == []


async def test_a_new_phone_of_a_member_receives_the_key(person: MakePerson) -> None:
    ada, bob = person(ADA), person(BOB)
    async with phones(ada, bob):
        group = await meet(ada, bob)
        await ada.write(group, "one")
        await bob.until_read("one")
    async with ada.phone(), bob.phone(fresh=True):
        await ada.until(lambda: any(n.kind == "identity" and n.peer == BOB for n in ada.notices))
        await ada.write(group, "two")
        await bob.until_read("one", "two")


async def test_a_non_member_receives_no_key(person: MakePerson) -> None:
    ada, bob, dot = person(ADA), person(BOB), person(DOT)
    async with phones(ada, bob, dot):
        group = await meet(ada, bob)
        await ada.write(group, "secret")
        await bob.until_read("secret")
        await dot.fleet.send_each(dot.fleet.devices[DOT], [ADA], content.encode_sender_key_request(group))
        await dot.fleet.send(DOT, ADA, "please")
        await ada.until_read("please")
        await ada.fleet.send(ADA, DOT, "no")
        await dot.until_read("no")
        assert inbox.CONTROL not in {message.kind for message in await received(dot)}


@pytest.mark.parametrize("fate", ["before", "after"])
async def test_a_failed_commit_neither_loses_nor_repeats_a_group_message(person: MakePerson, fate: str) -> None:
    ada, bob = person(ADA), person(BOB)
    async with phones(ada, bob):
        group = await meet(ada, bob)
        await ada.write(group, "0")
        await bob.until_read("0")
        bob.store.failures += [fate, "ok", fate]
        for n in range(1, 6):
            await ada.write(group, f"{n}")
        await bob.until_read("0", "1", "2", "3", "4", "5")
        assert not bob.store.failures
        await ada.until(lambda: sum(n.kind == "read" for n in ada.notices) >= 1)
    assert [m.content for m in await received(bob) if m.kind == inbox.TEXT] == ["0", "1", "2", "3", "4", "5"]


async def test_an_invalid_distribution_changes_nothing(person: MakePerson) -> None:
    ada, bob = person(ADA), person(BOB)
    async with phones(ada, bob):
        group = await meet(ada, bob)
        ada_device = ada.fleet.devices[ADA]
        for plaintext in (
            content.encode_sender_key(group, b"nonsense"),
            content.encode_sender_key("no group", b""),
            b'{"type":"sender_key"}',
            b'{"type":"sender_key_request","sender_key_request":{"group":5}}',
        ):
            await ada.fleet.send_each(ada_device, [BOB], plaintext)
        await ada.write(group, "one")
        await bob.until_read("one")
