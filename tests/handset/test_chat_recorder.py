"""Record of a number's chats: after a commit of unknown outcome, and types with reserved names."""

from __future__ import annotations

from pathlib import Path

import pytest

from handset.devices.context import FleetContext
from handset.web.recorder import ChatRecorder
from tests.handset.harness import VAULT, Bench, bench
from tests.handset.scripted import BUSINESS, Business
from tidings.storage.handset import chats
from tidings.storage.handset.chats import ChatItemRow
from tidings.wire import content

ADA = "15550100001"


async def opened(world: Bench) -> ChatRecorder:
    context = FleetContext("fleet", world.database, VAULT, world.clock, world.limits)
    record = ChatRecorder(context, ADA, lambda: None)
    await record.open()
    return record


async def begin(world: Bench, business: Business) -> None:
    (device,) = await world.devices()
    business.open(device, world.keys[ADA])
    await world.network.until_acked(world.network.deliver(business.seal(ADA, "hello")))


async def items(world: Bench, chat: str = BUSINESS) -> list[ChatItemRow]:
    async with world.database.reading() as connection:
        return await chats.list_page(connection, ADA, chat, before=0, limit=1000)


async def texts(world: Bench, chat: str = BUSINESS) -> list[str]:
    return [content.text_of(VAULT.open_chat(row)) for row in await items(world, chat)]


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
