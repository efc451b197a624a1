"""A handset requests what it could not decrypt and shows it once, and resends what a peer could not decrypt."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

from handset.devices.context import FleetLimits
from handset.devices.device import Device
from handset.fleet import Fleet
from handset.receiving import message_store
from handset.receiving.items import Delivery
from tests.handset.fleet_support import READER, begin, device_of
from tests.handset.harness import Bench, bench
from tests.handset.scripted import BUSINESS, Business
from tests.manual_clock import ManualClock
from tidings import e2ee
from tidings.client.keys import KeySet
from tidings.client.sessions import MAX_ATTEMPTS
from tidings.storage.handset import inbox
from tidings.storage.handset import sent as handset_sent
from tidings.wire import device as wire

GARBAGE = b"3garbage"


def text(body: str) -> bytes:
    return msgspec.json.encode({"type": "text", "text": {"body": body}})


def garbage(id: str) -> wire.Deliver:
    return wire.Deliver(0, READER, BUSINESS, id, wire.MESSAGE, 1_600_000_000_000, GARBAGE)


def retry(*refs: str, id: str = "retry") -> wire.Deliver:
    return wire.Deliver(0, READER, BUSINESS, id, wire.RETRY, 1, refs=list(refs))


def again(business: Business, body: str, *, id: str, repeats: str) -> wire.Deliver:
    return msgspec.structs.replace(business.seal_raw(READER, text(body), id), refs=[repeats])


def sent(world: Bench, kind: str) -> list[wire.Send]:
    """Return the latest send of each id, in order."""
    return [send for send in {send.id: send for send in world.network.sends}.values() if send.kind == kind]


def repetitions(world: Bench, id: str) -> list[wire.Send]:
    both = (wire.PREKEY, wire.MESSAGE)
    return [s for s in {s.id: s for s in world.network.sends}.values() if s.kind in both and s.refs == [id]]


def read_sent(business: Business, send: wire.Send) -> Any:
    """Return the content of a first message to the business, in the session that it sets up with its one key of each
    kind."""
    first = e2ee.PreKeySignalMessage.parse(send.body)
    record = business.sessions.get(READER)
    if record is None or record.needs_setup(first):
        signed, kyber = _KEYS[business.number]
        record = e2ee.SessionRecord.respond(None, business.identity, first, signed, None, kyber)
        business.sessions[READER] = record
    return msgspec.json.decode(record.decrypt(e2ee.PREKEY, send.body))


_KEYS: dict[str, tuple[e2ee.SignedPreKey, e2ee.KyberPreKey]] = {}


def offer(world: Bench, business: Business) -> None:
    """Let the network hand out keys of the business for which `read_sent` has the private parts."""
    signed = e2ee.SignedPreKey.generate(business.identity, 7)
    kyber = e2ee.KyberPreKey.generate(business.identity, 8)
    _KEYS[business.number] = signed, kyber
    world.network.bundles = [
        wire.Bundle(
            business.number,
            1,
            business.identity.public,
            7,
            signed.public,
            signed.signature,
            kyber_prekey_id=8,
            kyber_prekey=kyber.public,
            kyber_prekey_signature=kyber.signature,
        )
    ]


class Acknowledged:
    """Connection of deliveries that the test handed over itself."""

    def acknowledge(self, deliveries: Sequence[wire.Deliver]) -> None:
        """Acknowledge nothing: the network does not know these deliveries."""


def in_one_batch(world: Bench, fleet: Fleet, frames: Sequence[wire.Deliver]) -> None:
    """Hand over deliveries within one iteration of the event loop, so that one batch has them all."""
    store = fleet._sender.store
    assert store is not None
    for frame in frames:
        assert store.deliver(Delivery(Acknowledged(), fleet.devices[READER], frame))


async def with_session(world: Bench) -> tuple[Business, Device, KeySet]:
    """Return a business with a session on which the device has replied."""
    business = Business()
    device = await device_of(world, READER)
    await begin(world, business, READER)
    await world.network.until_acked(world.network.deliver(business.seal(READER, "hello")))
    sends = await world.network.until_sent(3)
    for send in sends:
        if send.kind == wire.MESSAGE:
            business.open_sealed(send)
    return business, device, world.keys[READER]


async def test_an_undecryptable_message_is_requested_again_and_shown_once(tmp_path: Path) -> None:
    async with bench(tmp_path, READER) as world, world.running():
        business, _, _ = await with_session(world)
        offer(world, business)
        await world.network.until_acked(world.network.deliver(garbage("lost")))
        await world.network.until(lambda: bool(sent(world, wire.RETRY)))
        (null,), (request,) = sent(world, wire.PREKEY), sent(world, wire.RETRY)
        assert world.network.sends.index(null) < world.network.sends.index(request)
        assert (request.refs, read_sent(business, null)) == (["lost"], {"type": "null"})

        response = again(business, "found", id="other", repeats="lost")
        await world.network.until_acked(*[world.network.deliver(response) for _ in range(2)])
        # The lost message itself arrives again, too.
        await world.network.until_acked(world.network.deliver(garbage("lost")))
        await world.network.until_acked(world.network.deliver(business.seal(READER, "after")))
        assert [message.text for message in world.phone.shown] == ["hello", "found", "after"]
        assert world.phone.shown[1].id == "lost"
        assert world.phone.shown[1].time == 1_600_000_000_000
        await world.network.until(lambda: any("lost" in send.refs for send in sent(world, wire.READ)))
        kinds = {message.id: message.kind for message in await world.inbox()}
        assert kinds["lost"] == inbox.TEXT
        assert "other" not in kinds


async def test_a_repetition_is_recognised_after_a_restart(tmp_path: Path) -> None:
    async with bench(tmp_path, READER) as world:
        async with world.running():
            business, _, _ = await with_session(world)
            offer(world, business)
            await world.network.until_acked(world.network.deliver(garbage("lost")))
            await world.network.until(lambda: bool(sent(world, wire.RETRY)))
            read_sent(business, sent(world, wire.PREKEY)[0])
        response = again(business, "found", id="other", repeats="lost")
        for _ in range(2):
            async with world.running():
                await world.network.until_acked(world.network.deliver(response))
        assert [message.text for message in world.phone.shown] == ["hello", "found"]


@pytest.mark.parametrize("order", [(0, 1), (1, 0), (0, 0, 1, 1)])
async def test_one_readable_repetition_of_a_batch_suffices(tmp_path: Path, order: tuple[int, ...]) -> None:
    async with bench(tmp_path, READER) as world, world.running() as fleet:
        business, _, _ = await with_session(world)
        damaged = msgspec.structs.replace(garbage("first"), refs=["lost"])
        received = [damaged, again(business, "found", id="second", repeats="lost")]
        in_one_batch(world, fleet, [received[index] for index in order])
        await world.phone.until(lambda: len(world.phone.shown) > 1)
        await world.network.until_acked(world.network.deliver(business.seal(READER, "after")))
        assert [message.text for message in world.phone.shown] == ["hello", "found", "after"]
        assert {message.id: message.kind for message in await world.inbox()}["lost"] == inbox.TEXT


async def test_a_message_and_its_readable_repetition_may_arrive_in_one_batch(tmp_path: Path) -> None:
    async with bench(tmp_path, READER) as world, world.running() as fleet:
        business, _, _ = await with_session(world)
        in_one_batch(world, fleet, [garbage("lost"), again(business, "found", id="second", repeats="lost")])
        await world.phone.until(lambda: len(world.phone.shown) > 1)
        found = world.phone.shown[1]
        assert (found.id, found.text, found.time) == ("lost", "found", 1_600_000_000_000)


async def test_a_retry_request_unsent_at_shutdown_is_sent_at_the_next_start(tmp_path: Path) -> None:
    clock = ManualClock()
    async with bench(tmp_path, READER, clock=clock) as world:
        async with world.running():
            await with_session(world)
            # No keys are available, so no session, and no hurry either.
            await world.network.until_acked(world.network.deliver(garbage("lost")))
            assert not sent(world, wire.RETRY)
        clock.advance(2.1)
        async with world.running():
            await world.network.until(lambda: bool(sent(world, wire.RETRY)))
            assert sent(world, wire.RETRY)[0].refs == ["lost"]


async def test_undecryptable_messages_cause_few_sessions_and_bounded_retry_requests(tmp_path: Path) -> None:
    async with bench(tmp_path, READER, clock=ManualClock()) as world, world.running():
        business, _, _ = await with_session(world)
        offer(world, business)
        for n in range(message_store.MAX_ASKED + 100):
            number = world.network.deliver(garbage(f"bad-{n}"))
            if n % 100 == 0:
                await world.network.until_acked(number)
        await world.network.until_acked(number)
        await world.network.until_acked(world.network.deliver(business.seal(READER, "good")))
        assert [message.text for message in world.phone.shown] == ["hello", "good"]
        assert len(sent(world, wire.PREKEY)) <= 3
        envelopes = await world.outbox()
        requested = [ref for send in sent(world, wire.RETRY) for ref in send.refs]
        requested += [ref for envelope in envelopes if envelope.kind == wire.RETRY for ref in envelope.refs]
        assert len(set(requested)) <= message_store.MAX_ASKED


async def test_a_peer_that_lost_its_session_receives_the_message_on_a_new_one(tmp_path: Path) -> None:
    async with bench(tmp_path, READER) as world, world.running() as fleet:
        business, _, _ = await with_session(world)
        offer(world, business)
        id = await fleet.send(READER, business.number, "precious")
        await world.network.until(lambda: any(send.id == id for send in world.network.sends))
        del business.sessions[READER]
        await world.network.until_acked(*[world.network.deliver(retry(id, "unknown")) for _ in range(2)])
        await world.network.until(lambda: len(repetitions(world, id)) == 1)
        null, repeated = sent(world, wire.PREKEY)
        assert read_sent(business, null) == {"type": "null"}
        assert (repeated.id != id, read_sent(business, repeated)["text"]) == (True, {"body": "precious"})


async def test_a_message_is_resent_on_the_session_that_its_peer_just_opened(tmp_path: Path) -> None:
    async with bench(tmp_path, READER) as world, world.running() as fleet:
        business, device, keys = await with_session(world)
        ids = [await fleet.send(READER, business.number, f"precious {n}") for n in range(3)]
        await world.network.until(lambda: {*ids} <= {send.id for send in world.network.sends})
        business.open(device, keys, one_time=1)
        await world.network.until_acked(world.network.deliver(business.seal_raw(READER, b'{"type":"null"}', "null")))
        await world.network.until_acked(world.network.deliver(retry(*ids)))
        await world.network.until(lambda: all(repetitions(world, id) for id in ids))
        null = [send for send in world.network.sends if send.kind == wire.MESSAGE][-4]
        assert business.open_sealed(null) == {"type": "null"}
        found = [business.open_sealed(send)["text"]["body"] for id in ids for send in repetitions(world, id)]
        assert found == [f"precious {n}" for n in range(3)]


async def test_a_message_is_resent_only_to_its_recipient_and_a_limited_number_of_times(tmp_path: Path) -> None:
    async with bench(tmp_path, READER) as world, world.running() as fleet:
        business, device, keys = await with_session(world)
        id = await fleet.send(READER, business.number, "precious")
        thief = msgspec.structs.replace(retry(id, id="thief"), sender="15550199999")
        await world.network.until_acked(world.network.deliver(thief))
        assert not repetitions(world, id)
        for n in range(MAX_ATTEMPTS + 2):
            business.open(device, keys, one_time=None)
            null = business.seal_raw(READER, b'{"type":"null"}', f"null-{n}")
            await world.network.until_acked(world.network.deliver(null))
            await world.network.until_acked(world.network.deliver(retry(id, id=f"retry-{n}")))
        await world.network.until_acked(world.network.deliver(business.seal(READER, "end")))
        assert len(repetitions(world, id)) == MAX_ATTEMPTS


async def test_a_resend_that_waits_for_a_session_is_sent_at_the_next_start(tmp_path: Path) -> None:
    async with bench(tmp_path, READER) as world:
        async with world.running() as fleet:
            business, _, _ = await with_session(world)
            id = await fleet.send(READER, business.number, "precious")
            await world.network.until(lambda: any(send.id == id for send in world.network.sends))
            # No keys of the business are available.
            await world.network.until_acked(world.network.deliver(retry(id)))
            assert not repetitions(world, id)
        offer(world, business)
        async with world.running():
            await world.network.until(lambda: len(repetitions(world, id)) == 1)
            assert read_sent(business, repetitions(world, id)[0])["text"] == {"body": "precious"}


async def test_sent_messages_are_kept_up_to_an_age_and_a_number(tmp_path: Path) -> None:
    clock = ManualClock()

    async def kept(world: Bench, ids: list[str]) -> list[str]:
        async with world.database.reading() as connection:
            return [row.id for row in await handset_sent.list_sent(connection, READER, ids)]

    async with bench(tmp_path, READER, clock=clock, limits=FleetLimits(sent=2)) as world:
        async with world.running() as fleet:
            business, _, _ = await with_session(world)
            ids = [await fleet.send(READER, business.number, str(n)) for n in range(4)]
            assert await kept(world, ids) == ids
        async with world.running():
            assert await kept(world, ids) == ids[2:]
        clock.advance(31 * 86_400)
        async with world.running():
            assert await kept(world, ids) == []


async def test_a_file_of_an_absurd_size_is_shown_and_does_not_end_the_fleet(tmp_path: Path) -> None:
    async with bench(tmp_path, READER) as world, world.running():
        business, _, _ = await with_session(world)
        plaintext = f'{{"type":"image","image":{{"size":{10**400}}}}}'.encode()
        async with asyncio.timeout(10):
            await world.network.until_acked(world.network.deliver(business.seal_raw(READER, plaintext, "odd")))
            await world.network.until_acked(world.network.deliver(business.seal(READER, "after")))
        assert [shown.type for shown in world.phone.shown] == ["text", "image", "text"]
