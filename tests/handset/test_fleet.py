"""Fleet between its store and a network that loses, repeats and refuses."""

from __future__ import annotations

import asyncio
import json
import tempfile
from pathlib import Path
from unittest import mock

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from handset import errors, reading
from handset.devices.context import FleetLimits
from tests.handset.fleet_support import ECHO, NULL, QUIET, READER, begin, device_of, receipts
from tests.handset.harness import Bench, bench
from tests.handset.scripted import Business
from tests.simulated_crashes import dies_at
from tidings import e2ee
from tidings.aio import crashpoints
from tidings.storage.handset import inbox, prekeys, sessions
from tidings.wire import device as wire

TYPING = b'{"type":"typing","context":{"id":"ABGG1"}}'


def transient(frame: wire.Deliver) -> wire.Deliver:
    """Return a delivery as a transient envelope."""
    assert frame.kind == wire.MESSAGE
    return msgspec.structs.replace(frame, kind="transient")


async def test_a_message_is_acked_shown_and_answered_with_receipts_in_order(tmp_path: Path) -> None:
    async with bench(tmp_path, READER) as world, world.running():
        business = Business()
        business.open(await device_of(world, READER), world.keys[READER])
        n = world.network.deliver(business.seal(READER, "hello"))
        await world.network.until_acked(n)
        await world.network.until_sent(2)
        assert [message.text for message in world.phone.shown] == ["hello"]
        assert receipts(world) == [(wire.DELIVERED, "m1"), (wire.READ, "m1")]


async def test_the_second_message_of_a_first_session_gets_one_null_message(tmp_path: Path) -> None:
    async with bench(tmp_path, READER) as world, world.running():
        business = Business()
        business.open(await device_of(world, READER), world.keys[READER])
        await world.network.until_acked(world.network.deliver(business.seal(READER, "hello")))
        await world.network.until_sent(2)
        assert not [frame for frame in world.network.sends if frame.body]
        later = [business.seal(READER, f"{n}") for n in range(3)]
        assert {frame.kind for frame in later} == {wire.PREKEY}
        await world.network.until_acked(*map(world.network.deliver, later))
        await world.network.until(lambda: len(receipts(world)) == 8)
        # The sender stops repeating the key exchange.
        (empty,) = [frame for frame in world.network.sends if frame.body]
        assert business.open_sealed(empty) == {"type": "null"}
        assert business.seal(READER, "again").kind == wire.MESSAGE


async def test_the_first_message_of_a_session_that_replaces_another_gets_a_null_message(tmp_path: Path) -> None:
    async with bench(tmp_path, READER) as world, world.running():
        business = Business()
        device = await device_of(world, READER)
        for index in range(2):
            business.open(device, world.keys[READER], one_time=index)
            await world.network.until_acked(world.network.deliver(business.seal(READER, "hello")))
        sends = await world.network.until_sent(5)
        (empty,) = [frame for frame in sends if frame.body]
        assert business.open_sealed(empty) == {"type": "null"}


async def test_a_null_message_is_not_shown_and_gets_no_receipt(tmp_path: Path) -> None:
    async with bench(tmp_path, READER) as world, world.running():
        business = Business()
        await begin(world, business, READER)
        n = world.network.deliver(business.seal_raw(READER, NULL, "null-1"))
        await world.network.until_acked(n)
        await world.network.until_sent(1)
        assert not world.phone.shown
        assert not receipts(world)


async def test_a_typing_indicator_is_noticed_and_leaves_nothing_behind(tmp_path: Path) -> None:
    async with bench(tmp_path, READER) as world, world.running():
        business = Business()
        await begin(world, business, READER)
        await world.network.until_acked(world.network.deliver(business.seal(READER, "hello")))
        (response,) = [frame for frame in await world.network.until_sent(3) if frame.body]
        business.open_sealed(response)
        # One is lost on the way. It does not affect what follows.
        business.seal_raw(READER, TYPING, "lost")
        await world.network.until_acked(world.network.deliver(transient(business.seal_raw(READER, TYPING, "t1"))))
        assert [(notice.kind, notice.number, notice.peer) for notice in world.phone.notices] == [
            ("typing", READER, business.number)
        ]
        await world.network.until_acked(world.network.deliver(business.seal(READER, "again")))
        assert [message.text for message in world.phone.shown] == ["hello", "again"]
        await world.network.until(lambda: len(receipts(world)) == 4)
        assert {ref for _, ref in receipts(world)} == {"m1", "m2"}
        assert [row.id for row in await world.inbox()] == ["first", "m1", "m2"]


async def test_a_transient_envelope_that_cannot_be_read_is_dropped(tmp_path: Path) -> None:
    async with bench(tmp_path, READER, QUIET) as world, world.running():
        business = Business()
        await begin(world, business, READER)
        await world.network.until_acked(world.network.deliver(business.seal(READER, "hello")))
        (response,) = [frame for frame in await world.network.until_sent(3) if frame.body]
        business.open_sealed(response)
        frame = transient(business.seal_raw(READER, TYPING, "t1"))
        broken = msgspec.structs.replace(frame, id="t2", body=frame.body[:-1] + bytes([frame.body[-1] ^ 1]))
        unknown = transient(business.seal_raw(READER, b'{"type":"waving"}', "t3"))
        no_content = transient(business.seal_raw(READER, b"[", "t4"))
        other = msgspec.structs.replace(frame, id="t5", to=QUIET)  # which has no session
        sent = [world.network.deliver(each) for each in (broken, unknown, no_content, other, frame, frame)]
        await world.network.until_acked(*sent)
        assert [(notice.kind, notice.number) for notice in world.phone.notices] == [("typing", READER)]
        assert len(world.phone.shown) == 1
        # No message is requested again, and no session is replaced.
        await world.network.until_acked(world.network.deliver(business.seal(READER, "last")))
        await world.network.until(lambda: len(receipts(world)) == 4)
        assert {frame.kind for frame in world.network.sends} == {wire.MESSAGE, wire.DELIVERED, wire.READ}


async def test_an_encrypted_envelope_of_a_later_release_is_acknowledged_and_the_session_goes_on(tmp_path: Path) -> None:
    async with bench(tmp_path, READER) as world, world.running():
        business = Business()
        await begin(world, business, READER)
        await world.network.until_acked(world.network.deliver(business.seal(READER, "hello")))
        (response,) = [frame for frame in await world.network.until_sent(3) if frame.body]
        business.open_sealed(response)
        later = msgspec.structs.replace(business.seal_raw(READER, TYPING, "t1"), kind="later")
        await world.network.until_acked(world.network.deliver(later))
        await world.network.until_acked(world.network.deliver(business.seal(READER, "again")))
        assert [message.text for message in world.phone.shown] == ["hello", "again"]
        await world.network.until(lambda: len(receipts(world)) == 4)
        assert {frame.kind for frame in world.network.sends} == {wire.MESSAGE, wire.DELIVERED, wire.READ}


async def test_a_typing_indicator_in_a_stored_envelope_is_not_shown_as_a_message(tmp_path: Path) -> None:
    async with bench(tmp_path, READER) as world, world.running():
        business = Business()
        await begin(world, business, READER)
        await world.network.until_acked(world.network.deliver(business.seal_raw(READER, TYPING, "t1")))
        await world.network.until_sent(1)
        assert not world.phone.shown
        assert not receipts(world)


async def test_a_used_one_time_prekey_is_deleted_with_the_commit_of_its_session(tmp_path: Path) -> None:
    async with bench(tmp_path, READER) as world, world.running():
        business = Business()
        key_set = world.keys[READER]
        business.open(await device_of(world, READER), key_set, one_time=1)
        n = world.network.deliver(business.seal(READER, "hello"))
        await world.network.until_acked(n)
        async with world.database.reading() as connection:
            ids = range(1, 10)
            left = {row.key_id for row in await prekeys.list_prekeys(connection, [(READER, i) for i in ids])}
            assert await sessions.list_sessions(connection, [(READER, business.number)])
    assert key_set.one_time[1].key_id not in left
    assert key_set.one_time[0].key_id in left
    assert key_set.kyber_last is not None
    assert key_set.kyber_last.key_id in left


async def test_a_redelivered_message_is_acked_and_not_shown_again(tmp_path: Path) -> None:
    async with bench(tmp_path, READER) as world, world.running():
        business = Business()
        business.open(await device_of(world, READER), world.keys[READER])
        frame = business.seal(READER, "once")
        await world.network.until_acked(world.network.deliver(frame), world.network.deliver(frame))
        world.network.drop()
        await world.network.until_online(READER)
        await world.network.until_acked(world.network.deliver(frame))
        assert len(world.phone.shown) == 1


async def test_duplicates_evicted_from_memory_are_found_in_the_inbox(tmp_path: Path) -> None:
    async with bench(tmp_path, READER, limits=FleetLimits(recent=2)) as world, world.running():
        business = Business()
        business.open(await device_of(world, READER), world.keys[READER])
        frames = [business.seal(READER, f"text {n}") for n in range(5)]
        await world.network.until_acked(*[world.network.deliver(frame) for frame in frames])
        await world.network.until_acked(*[world.network.deliver(frame) for frame in frames])
        assert [message.text for message in world.phone.shown] == [f"text {n}" for n in range(5)]


async def test_a_message_committed_but_not_acked_is_shown_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with bench(tmp_path, READER) as world, world.running():
        business = Business()
        business.open(await device_of(world, READER), world.keys[READER])
        dies_at(monkeypatch, crashpoints.AFTER_ROW_BEFORE_NETWORK_ACK, ConnectionError("died here"))
        world.network.post(business.seal(READER, "hello"))
        await world.phone.until(lambda: bool(world.phone.shown))
        await world.network.until(lambda: not world.network.mail)
        await world.network.until(lambda: (wire.READ, "m1") in receipts(world))
        assert [message.text for message in world.phone.shown] == ["hello"]


async def test_a_message_in_the_log_is_not_shown_again_after_a_restart(tmp_path: Path) -> None:
    async with bench(tmp_path, READER) as world:
        business = Business()
        async with world.running():
            business.open(await device_of(world, READER), world.keys[READER])
            await world.network.until_acked(world.network.deliver(business.seal(READER, "hello")))
        # As if the process had died before it marked anything as shown.
        async with world.database.transaction() as connection:
            await inbox.save_shown(connection, "fleet", 0)
        async with world.running():
            assert len(world.phone.shown) == 1
        world.log_path.write_text("")
        async with world.database.transaction() as connection:
            await inbox.save_shown(connection, "fleet", 0)
        async with world.running():
            assert [message.text for message in world.phone.shown] == ["hello", "hello"]


async def test_a_reply_is_shown_identically_after_a_restart(tmp_path: Path) -> None:
    plaintext = b'{"type":"text","text":{"body":""},"context":{"id":"gBEG1"}}'
    async with bench(tmp_path, READER) as world:
        business = Business()
        async with world.running():
            business.open(await device_of(world, READER), world.keys[READER])
            for n, body in enumerate((b"Soup", b"", b"{}")):
                frame = business.seal_raw(READER, plaintext.replace(b'"body":""', b'"body":"%b"' % body), f"m{n}")
                await world.network.until_acked(world.network.deliver(frame))
        world.log_path.write_text("")
        async with world.database.transaction() as connection:
            await inbox.save_shown(connection, "fleet", 0)
        async with world.running():
            first, again = world.phone.shown[:3], world.phone.shown[3:]
    assert [(m.type, m.text, reading.answered(m.raw)) for m in first] == [
        ("text", text, "gBEG1") for text in ("Soup", "", "{}")
    ]
    assert [(m.type, m.text, m.raw) for m in again] == [(m.type, m.text, m.raw) for m in first]


async def test_a_truncated_line_of_the_log_is_rewritten(tmp_path: Path) -> None:
    async with bench(tmp_path, READER) as world:
        business = Business()
        async with world.running():
            business.open(await device_of(world, READER), world.keys[READER])
            for text in ("one", "two"):
                await world.network.until_acked(world.network.deliver(business.seal(READER, text)))
    whole = world.log_path.read_bytes()
    world.log_path.write_bytes(whole[:-20])
    again = Bench(tmp_path)
    async with again.database.transaction() as connection:
        await inbox.save_shown(connection, "fleet", 0)
    again.address = await again.network.start()
    async with again.running():
        pass
    await again.close()
    ids = [json.loads(line)["id"] for line in world.log_path.read_text().splitlines()]
    assert ids == ["m1", "m2"]


async def test_an_undecryptable_message_is_acked_and_requested_on_a_new_session(tmp_path: Path) -> None:
    async with bench(tmp_path, READER) as world, world.running():
        business = Business()
        world.network.bundles = [_bundle(business)]
        garbage = wire.Deliver(0, READER, business.number, "broken", wire.MESSAGE, 1, b"3garbage")
        await world.network.until_acked(world.network.deliver(garbage))
        sends = await world.network.until_sent(2)
        assert not world.phone.shown
        assert [notice.kind for notice in world.phone.notices] == ["undecryptable"]
        # First the session on which it can be sent, then the request for it.
        assert [send.kind for send in sends] == [wire.PREKEY, wire.RETRY]
        assert receipts(world) == [(wire.RETRY, "broken")]
        assert [(m.id, m.kind) for m in await world.inbox()] == [("broken", inbox.UNREADABLE)]
        await world.network.until_acked(world.network.deliver(garbage))
        assert len(world.phone.notices) == 1


async def test_a_first_message_with_a_missing_prekey_does_not_harm_the_session(tmp_path: Path) -> None:
    async with bench(tmp_path, READER) as world, world.running():
        business, thief = Business(), Business()
        device = await device_of(world, READER)
        business.open(device, world.keys[READER], one_time=0)
        await world.network.until_acked(world.network.deliver(business.seal(READER, "one")))
        thief.open(device, world.keys[READER], one_time=0)
        await world.network.until_acked(world.network.deliver(thief.seal_raw(READER, b'{"type":"null"}', "t1")))
        await world.network.until_acked(world.network.deliver(business.seal(READER, "two")))
        assert [message.text for message in world.phone.shown] == ["one", "two"]


async def test_a_peer_with_a_new_identity_is_accepted_and_reported(tmp_path: Path) -> None:
    async with bench(tmp_path, READER) as world, world.running():
        device = await device_of(world, READER)
        for index, text in enumerate(("before", "after")):
            business = Business(sent=index)
            business.open(device, world.keys[READER], one_time=index)
            await world.network.until_acked(world.network.deliver(business.seal(READER, text)))
        assert [message.text for message in world.phone.shown] == ["before", "after"]
        assert [notice.kind for notice in world.phone.notices] == ["identity"]


async def test_a_session_is_dropped_when_the_network_reports_a_new_registration(tmp_path: Path) -> None:
    async with bench(tmp_path, READER) as world, world.running() as fleet:
        business = Business()
        business.open(await device_of(world, READER), world.keys[READER])
        await world.network.until_acked(world.network.deliver(business.seal(READER, "hello")))
        notice = wire.Deliver(0, READER, business.number, "identity.1", wire.IDENTITY, 1)
        await world.network.until_acked(world.network.deliver(notice))
        renewed = Business()
        world.network.bundles = [_bundle(renewed)]
        before = len(world.network.sends)
        await fleet.send(READER, renewed.number, "to whoever you are now")
        sends = await world.network.until_sent(before + 1)
        assert sends[-1].kind == wire.PREKEY


async def test_a_notice_of_the_known_identity_keeps_the_session(tmp_path: Path) -> None:
    async with bench(tmp_path, READER) as world, world.running() as fleet:
        business = Business()
        business.open(await device_of(world, READER), world.keys[READER])
        await world.network.until_acked(world.network.deliver(business.seal(READER, "hello")))
        key = business.identity.public
        notice = wire.Deliver(0, READER, business.number, "identity.1", wire.IDENTITY, 1, key)
        await world.network.until_acked(world.network.deliver(notice))
        before = len(world.network.sends)
        await fleet.send(READER, business.number, "as ever")
        sends = await world.network.until_sent(before + 1)
        assert sends[-1].kind == wire.MESSAGE
        assert world.phone.notices == []


async def test_a_first_text_fetches_keys_and_fails_for_an_unregistered_number(tmp_path: Path) -> None:
    async with bench(tmp_path, READER) as world, world.running() as fleet:
        with pytest.raises(errors.NoSuchNumber):
            await fleet.send(READER, "15559999999", "hello?")
        world.network.bundles = [_bundle(Business())]
        message_id = await fleet.send(READER, Business().number, "hello")
        (frame,) = await world.network.until_sent(1)
        assert (frame.id, frame.kind) == (message_id, wire.PREKEY)
        assert len(message_id) == 27
        assert message_id.startswith("ABGG")


async def test_refused_tokens_and_low_prekeys_are_reported(tmp_path: Path) -> None:
    async with bench(tmp_path, READER, ECHO) as world:
        world.network.refuse_logins.add(ECHO)
        async with world.running():
            assert world.refused == [ECHO]
            world.network.send(wire.PreKeysLow(READER, 1, 0))
            business = Business()
            business.open(await device_of(world, READER), world.keys[READER])
            await world.network.until_acked(world.network.deliver(business.seal(READER, "hello")))
            assert world.low == [(READER, 1, 0)]


@settings(max_examples=25)
@given(
    failures=st.lists(st.sampled_from(["ok", "before", "after"]), max_size=8),
    cuts=st.sets(st.integers(0, 11)),
    kills=st.sets(st.integers(0, 11), max_size=3),
)
def test_each_message_is_shown_once_and_answered_despite_failures(
    failures: list[str], cuts: set[int], kills: set[int]
) -> None:
    """The store fails before or after commits, the connection is cut, the process stops and restarts: 12
    messages."""
    # Failures follow one another at once here: the delay between a fleet's attempts is not under test.
    with tempfile.TemporaryDirectory() as folder, mock.patch("handset.fleet.MAX_DELAY", 0.05):
        asyncio.run(_survive(Path(folder), failures, cuts, kills))


async def _survive(folder: Path, failures: list[str], cuts: set[int], kills: set[int]) -> None:
    async with bench(folder, READER, ECHO) as world:
        businesses = {}
        for number in (READER, ECHO):
            businesses[number] = Business()
            businesses[number].open(await device_of(world, number), world.keys[number])
        world.database.failures = list(failures)
        left = list(range(12))
        while left:
            async with world.running():
                while left:
                    n = left.pop(0)
                    number = (READER, ECHO)[n % 2]
                    frame = businesses[number].seal(number, f"text {n}")
                    frame.id = f"{number}-{n}"
                    world.network.post(frame)
                    if n in cuts:
                        world.network.drop()
                    if n in kills:
                        break
                else:
                    await world.network.until(lambda: not world.network.mail)
        async with world.running():
            await world.network.until(lambda: not world.network.mail)
            expected = {f"{(READER, ECHO)[n % 2]}-{n}" for n in range(12)}
            for kind in (wire.DELIVERED, wire.READ):
                await world.network.until(
                    lambda kind=kind: {ref for each, ref in receipts(world) if each == kind} == expected
                )
        shown = [json.loads(line)["id"] for line in world.log_path.read_text().splitlines()]
        assert sorted(shown) == sorted(expected)
        order = receipts(world)
        for message_id in expected:
            assert order.index((wire.DELIVERED, message_id)) < order.index((wire.READ, message_id))
        assert not await world.outbox()
        # The echoes decrypt, whatever was repeated: each ciphertext once, in any order.
        bodies = {frame.id: frame for frame in world.network.sends if frame.body and frame.sender == ECHO}
        texts = [businesses[ECHO].open_sealed(frame) for frame in bodies.values()]
        echoed = sorted(text["text"]["body"] for text in texts if text["type"] == "text")
        assert echoed == sorted(f"text {n}" for n in range(1, 12, 2))


def _bundle(business: Business) -> wire.Bundle:
    signed = e2ee.SignedPreKey.generate(business.identity, 1)
    return wire.Bundle(business.number, 7, business.identity.public, 1, signed.public, signed.signature)
