"""A first message that used no one-time pre-key opens a handset's session once, even if the network repeats it."""

from __future__ import annotations

from pathlib import Path

import msgspec

from tests.handset.fleet_support import READER, device_of
from tests.handset.harness import Bench, bench
from tests.handset.scripted import Business
from tidings.e2ee import curve
from tidings.storage.handset.base_keys import BASE_KEYS
from tidings.wire import device as wire


async def evict(world: Bench, business: Business) -> None:
    """Evict the session of a first message from the archive, which holds 10 sessions behind the current one."""
    for n in range(11):
        business.open(await device_of(world, READER), world.keys[READER], one_time=None)
        await world.network.until_acked(world.network.deliver(business.seal(READER, f"later {n}")))


async def test_a_replayed_first_message_is_not_shown_after_its_session_is_gone(tmp_path: Path) -> None:
    async with bench(tmp_path, READER) as world:
        business = Business()
        async with world.running():
            business.open(await device_of(world, READER), world.keys[READER], one_time=None)
            original = business.seal(READER, "pay 100")
            await world.network.until_acked(world.network.deliver(original))
            await evict(world, business)
            replay = msgspec.structs.replace(original, id="replay-1")
            await world.network.until_acked(world.network.deliver(replay))
        async with world.running():
            await world.network.until_online(READER)
            again = msgspec.structs.replace(original, id="replay-2")
            other_sender = msgspec.structs.replace(original, id="replay-3", sender="15550999999")
            await world.network.until_acked(world.network.deliver(again), world.network.deliver(other_sender))
        assert [message.text for message in world.phone.shown] == ["pay 100", *(f"later {n}" for n in range(11))]


async def test_a_replay_is_not_shown_in_the_batch_that_evicts_its_session(tmp_path: Path) -> None:
    async with bench(tmp_path, READER) as world, world.running():
        business = Business()
        frames: list[wire.Deliver] = []
        for n in range(12):
            business.open(await device_of(world, READER), world.keys[READER], one_time=None)
            frames.append(business.seal(READER, f"text {n}"))
        frames.append(msgspec.structs.replace(frames[0], id="replay"))
        await world.network.until_acked(*[world.network.deliver(frame) for frame in frames])
        assert [message.text for message in world.phone.shown] == [f"text {n}" for n in range(12)]


async def test_base_keys_are_recorded_only_without_a_one_time_pre_key(tmp_path: Path) -> None:
    async with bench(tmp_path, READER) as world, world.running():
        business = Business()
        for one_time in (0, None):
            business.open(await device_of(world, READER), world.keys[READER], one_time=one_time)
            await world.network.until_acked(world.network.deliver(business.seal(READER, "hello")))
        expected = curve.identify(business.sessions[READER].base_key).hex()
        async with world.database.reading() as connection:
            assert await BASE_KEYS.count(connection, READER) == 1
            assert await BASE_KEYS.list_known(connection, READER, [expected]) == {expected}
