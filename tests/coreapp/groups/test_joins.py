"""Messages posted at every moment around a join of an empty group; 300 joins, so a test of `make test-shards`."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.conftest import DatabaseFactory
from tests.coreapp import webhook_schemas
from tests.coreapp.conftest import World
from tests.coreapp.group_scene import Member, Scene, group_scene

JOINS = 300
MEMBERS = 10
# Seconds between the network's response to a join and the message: 0 to 49 ms. The first is posted before the response.
OFFSETS = [n / 1000 for n in range(50)]


@pytest.fixture
async def scene(world: World, database_factory: DatabaseFactory, tmp_path: Path) -> AsyncIterator[Scene]:
    async with group_scene(world, database_factory, tmp_path) as scene:
        yield scene
        for post in world.sink.posts:
            webhook_schemas.check(post.body)


@dataclasses.dataclass
class Posted:
    """Ids of accepted messages to one member, in order."""

    all: list[str] = dataclasses.field(default_factory=list)
    promised: list[str] = dataclasses.field(default_factory=list)  # posted after the network's 200
    unread: list[str] = dataclasses.field(default_factory=list)  # promised, but not received


async def join_once(scene: Scene, member: Member, group: str, offset: float, posted: Posted) -> None:
    """Post while the member joins, and once `offset` seconds after the network's response."""
    joining = asyncio.create_task(member.join(group))
    while not joining.done():
        posted.all.append(await scene.sent(group, "before the response"))
        await asyncio.wait([joining], timeout=0.005)
    await joining
    await asyncio.sleep(offset)
    message = await scene.sent(group, "after the response")
    posted.all.append(message)
    posted.promised.append(message)
    try:
        await member.signals.until(lambda: message in read_by(member), timeout=10)
    except TimeoutError:
        posted.unread.append(message)


def read_by(member: Member) -> list[str]:
    return [message for message, _ in member.shown]


async def test_300_messages_posted_at_any_moment_after_a_join_are_all_read(scene: Scene) -> None:
    """Every second join is to a new group, the others are by a member who had left the group empty."""
    members = [await scene.member(f"1555012{n:04}") for n in range(MEMBERS)]
    posted = {member.number: Posted() for member in members}

    async def join_repeatedly(number: int, member: Member) -> None:
        group = ""
        for turn in range(JOINS // MEMBERS):
            if turn % 2 == 0:
                group = await scene.create()
            else:
                await member.call("DELETE", f"/{group}")
                await scene.until_joined(group, without=(member.number,))
            await join_once(
                scene, member, group, OFFSETS[(turn * MEMBERS + number) % len(OFFSETS)], posted[member.number]
            )

    await asyncio.gather(*(join_repeatedly(number, member) for number, member in enumerate(members)))
    assert sum(len(each.promised) for each in posted.values()) == 300
    unread = [message for each in posted.values() for message in each.unread]
    assert len(unread) == 0, f"{len(unread)} of 300 were sent to nobody"
    for member in members:
        read = read_by(member)
        assert read == [message for message in posted[member.number].all if message in set(read)], "once, in order"
