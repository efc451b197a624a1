"""Outbox of a fleet: what the network has not accepted is sent again, later, or given up."""

from __future__ import annotations

from pathlib import Path

from handset.devices.context import FleetLimits
from handset.robots.behaviours import slow_delay
from tests.handset.fleet_support import ECHO, QUIET, READER, SLOW, begin, device_of, receipts
from tests.handset.harness import bench
from tests.handset.scripted import Business
from tests.manual_clock import ManualClock
from tidings.wire import device as wire


async def test_receipts_are_resent_unchanged_until_accepted(tmp_path: Path) -> None:
    async with bench(tmp_path, QUIET) as world, world.running():
        business = Business()
        await begin(world, business, QUIET)
        world.network.respond = lambda frame: None
        world.network.deliver(business.seal(QUIET, "hello"))
        await world.network.until_sent(2)
        world.network.drop()
        await world.network.until_sent(4)
        world.network.respond = lambda frame: wire.Accepted([frame.n])
        world.network.drop()
        await world.network.until_sent(6)
        sends = [(frame.id, frame.kind, frame.body, tuple(frame.refs)) for frame in world.network.sends]
        assert sends[0:2] == sends[2:4] == sends[4:6]
        world.network.drop()
        await world.network.until_online(QUIET)
        await world.network.until_acked(world.network.deliver(business.seal(QUIET, "more")))
        await world.network.until_sent(7)
        assert len(world.network.sends) == 7
    assert not await world.outbox()


async def test_the_outbox_survives_a_restart(tmp_path: Path) -> None:
    async with bench(tmp_path, ECHO) as world:
        business = Business()
        async with world.running():
            business.open(await device_of(world, ECHO), world.keys[ECHO])
            world.network.respond = lambda frame: None
            world.network.deliver(business.seal(ECHO, "hello"))
            await world.network.until_sent(3)
        before = [(frame.id, frame.kind, frame.body) for frame in world.network.sends]
        world.network.sends.clear()
        world.network.respond = lambda frame: wire.Accepted([frame.n])
        async with world.running():
            await world.network.until_sent(3)
            assert [(frame.id, frame.kind, frame.body) for frame in world.network.sends] == before
        assert business.open_sealed(world.network.sends[2]) == {"type": "text", "text": {"body": "hello"}}
    assert not await world.outbox()


async def test_a_receipt_refused_as_overloaded_is_retried_later(tmp_path: Path) -> None:
    clock = ManualClock()
    async with bench(tmp_path, QUIET, clock=clock) as world, world.running() as fleet:
        business = Business()
        await begin(world, business, QUIET)
        world.network.respond = lambda frame: wire.Refused(frame.n, wire.OVERLOADED)
        world.network.deliver(business.seal(QUIET, "hello"))
        await world.network.until_sent(2)
        world.network.respond = lambda frame: wire.Accepted([frame.n])
        # One more round trip, after which the refusals have been read.
        await world.network.until_acked(world.network.deliver(world.network.deliveries[1]))
        clock.advance(5)
        fleet.release_due()
        await world.network.until_sent(4)
        assert {frame.id for frame in world.network.sends[2:]} == {frame.id for frame in world.network.sends[:2]}
    assert not await world.outbox()


async def test_a_refused_envelope_leaves_the_outbox_and_is_reported(tmp_path: Path) -> None:
    async with bench(tmp_path, QUIET) as world:
        async with world.running():
            business = Business()
            await begin(world, business, QUIET)
            world.network.respond = lambda frame: wire.Refused(frame.n, wire.NO_SUCH_NUMBER)
            world.network.deliver(business.seal(QUIET, "hello"))
            await world.phone.until(lambda: len([n for n in world.phone.notices if n.kind == "refused"]) == 2)
        assert not await world.outbox()


async def test_a_slow_robot_holds_its_receipts_back_but_not_its_ack(tmp_path: Path) -> None:
    clock = ManualClock()
    async with bench(tmp_path, SLOW, clock=clock) as world:
        business = Business()
        async with world.running() as fleet:
            await begin(world, business, SLOW)
            await world.network.until_acked(world.network.deliver(business.seal(SLOW, "hello")))
            await world.network.until_sent(1)
            assert not receipts(world)
            clock.advance(slow_delay("m1") - 0.01)
            fleet.release_due()
            await world.network.until_acked(world.network.deliver(business.seal(SLOW, "two")))
            assert not receipts(world)
        # They are on disk: after a restart they still exist, with their due times.
        clock.advance(0.02)
        async with world.running():
            await world.network.until(lambda: len(receipts(world)) >= 2)
            assert receipts(world)[:2] == [(wire.DELIVERED, "m1"), (wire.READ, "m1")]


async def test_a_full_outbox_pauses_receiving_until_the_network_accepts(tmp_path: Path) -> None:
    async with bench(tmp_path, READER, limits=FleetLimits(outbox=2)) as world, world.running():
        business = Business()
        await begin(world, business, READER)
        world.network.respond = lambda frame: None
        first = world.network.deliver(business.seal(READER, "one"))
        await world.network.until_sent(3)
        second = world.network.deliver(business.seal(READER, "two"))
        world.network.send(wire.Pong())
        assert first in world.network.acked
        assert second not in world.network.acked
        world.network.send(wire.Accepted([frame.n for frame in world.network.sends]))
        await world.network.until_acked(second)
