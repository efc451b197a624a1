"""Record of a number's chats: after failed commits and kills, when rows have expired, and types with reserved names."""

from __future__ import annotations

import asyncio
import functools
from pathlib import Path
from unittest import mock

import pytest

from handset.application import TYPING, DeviceEvent
from handset.devices.context import FleetContext
from handset.web import recorder
from handset.web.recorder import ChatRecorder
from harness import polling
from tests.handset.harness import SEALER, Bench, bench
from tests.handset.scripted import BUSINESS, Business
from tests.manual_clock import ManualClock
from tidings.storage.handset import chats, outbox
from tidings.storage.handset.chats import ChatItemRow
from tidings.storage.handset.outbox import OutboxRow
from tidings.wire import content
from tidings.wire.device import GROUP, Deliver

ADA, DAY = "15550100001", 86_400.0


async def opened(world: Bench) -> ChatRecorder:
    context = FleetContext("fleet", world.database, SEALER, world.clock, world.limits)
    record = ChatRecorder(context, ADA, lambda: None)
    await record.open()
    return record


async def begin(world: Bench, business: Business) -> None:
    (device,) = await world.devices()
    business.open(device, world.keys[ADA])
    await world.network.until_acked(world.network.deliver(business.seal(ADA, "hello")))


async def deliver_now(world: Bench, frame: Deliver) -> None:
    frame.timestamp = int(world.clock.now() * 1000)
    await world.network.until_acked(world.network.deliver(frame))


async def items(world: Bench, chat: str = BUSINESS) -> list[ChatItemRow]:
    async with world.database.reading() as connection:
        return await chats.list_page(connection, ADA, chat, before=0, limit=1000)


async def is_sent(world: Bench) -> bool:
    return not await world.outbox()


async def texts(world: Bench, chat: str = BUSINESS) -> list[str]:
    return [content.text_of(SEALER.open_chat(row)) for row in await items(world, chat)]


async def test_a_commit_whose_outcome_is_unknown_does_not_end_the_record(tmp_path: Path) -> None:
    business = Business()
    async with bench(tmp_path, ADA) as world, world.running():
        record = await opened(world)
        await begin(world, business)
        world.database.failures = ["after"]
        with pytest.raises(ConnectionError):
            await record.record()
        await world.network.until_acked(world.network.deliver(business.seal(ADA, "again")))
        await record.record()
        assert await texts(world) == ["hello", "again"]


@pytest.mark.parametrize("kind", ["control", "undecryptable"])
async def test_a_type_with_the_name_of_a_hidden_row_is_shown(tmp_path: Path, kind: str) -> None:
    business = Business()
    async with bench(tmp_path, ADA) as world, world.running():
        record = await opened(world)
        await begin(world, business)
        frame = business.seal_raw(ADA, f'{{"type":"{kind}"}}'.encode(), "odd")
        await world.network.until_acked(world.network.deliver(frame))
        await record.record()
        assert [message.id for message in world.phone.shown] == ["m1", "odd"]
        assert [row.id for row in await items(world)] == ["m1", "odd"]


async def test_an_own_message_is_recorded_after_all_earlier_ones_have_expired(tmp_path: Path) -> None:
    clock, business = ManualClock(), Business()
    async with bench(tmp_path, ADA, clock=clock) as world:
        async with world.running() as fleet:
            record = await opened(world)
            await begin(world, business)
            await fleet.send(ADA, BUSINESS, "in spring")
            await record.record()
        # Sent messages are kept for 30 days.
        clock.advance(31 * DAY)
        for text in ("in summer", "in autumn"):
            async with world.running() as fleet:
                record = await opened(world)
                await fleet.send(ADA, BUSINESS, text)
                await record.record()
                await polling.until(functools.partial(is_sent, world))
            clock.advance(31 * DAY)
        assert (await texts(world))[-2:] == ["in summer", "in autumn"]


async def test_an_own_message_that_is_no_longer_shown_is_not_recorded_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recorder, "KEPT_ITEMS", 2)
    business = Business()
    async with bench(tmp_path, ADA) as world:
        async with world.running() as fleet:
            record = await opened(world)
            await begin(world, business)
            await fleet.send(ADA, BUSINESS, "mine")
            await record.record()
            for text in ("first", "second"):
                await deliver_now(world, business.seal(ADA, text))
                await record.record()
        for _ in range(2):
            record = await opened(world)
            await record.record()
            assert await texts(world) == ["first", "second"]


async def test_old_items_are_deleted_while_the_page_runs(tmp_path: Path) -> None:
    clock, business = ManualClock(), Business()
    async with bench(tmp_path, ADA, clock=clock) as world, world.running():
        record = await opened(world)
        await begin(world, business)
        await record.record()
        clock.advance(61 * DAY)
        await deliver_now(world, business.seal(ADA, "late"))
        await record.record()
        assert await texts(world) == ["late"]


async def test_an_own_group_message_is_recorded_after_a_kill_before_its_record(tmp_path: Path) -> None:
    group, raw = "15550100001-1700000000", content.encode_text("Hello all")
    async with bench(tmp_path, ADA) as world:
        draft = SEALER.seal_draft(ADA, group, "g1", raw)
        envelope = OutboxRow("fleet", 7, ADA, "", "g1", GROUP, 0, b"sealed", (), group, 1, draft)
        async with world.database.transaction() as connection:
            await outbox.add(connection, [envelope])
        for _ in range(2):
            record = await opened(world)
            await record.record()
            assert await texts(world, group) == ["Hello all"]
            (row,) = await items(world, group)
            assert (row.id, row.author, row.state) == ("g1", ADA, chats.QUEUED)


async def test_many_typing_indicators_of_a_peer_start_one_timer(tmp_path: Path) -> None:
    changes: list[str] = []
    async with bench(tmp_path, ADA) as world:
        context = FleetContext("fleet", world.database, SEALER, world.clock, world.limits)
        record = ChatRecorder(context, ADA, lambda: changes.append("changed"))
        with mock.patch.object(
            asyncio.get_running_loop(), "call_later", wraps=asyncio.get_running_loop().call_later
        ) as later:
            for _ in range(1000):
                record.notify(DeviceEvent(ADA, BUSINESS, TYPING))
        assert changes == ["changed"]
        (call,) = later.call_args_list
        # The indicator ends after 25 seconds.
        assert 24.0 < call.args[0] < 25.2
        call.args[1]()
        assert changes == ["changed", "changed"]
