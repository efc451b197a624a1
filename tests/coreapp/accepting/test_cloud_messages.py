"""Messages of the Cloud API: contacts are checked late, an identity may be named, and statuses return a text."""

from __future__ import annotations

import asyncio
import json
import time
from typing import Any

from tests.coreapp.conftest import BUSINESS, Running, World
from tidings.storage.business import messages
from tidings.storage.business.messages import Status
from tidings.wire import core, ids
from tidings.wire import device as frames

NUMBER, OTHER, NOBODY = "15550110001", "15550110002", "15550160000"
DAY = 86_400  # seconds
TEXT = b'{"type":"text","text":{"body":"hi"}}'


async def send(running: Running, to: str, **fields: Any) -> Any:
    return await running.client.call(
        lambda n: core.AcceptMessage(n, BUSINESS, to, "text", TEXT, checked_late=True, **fields)
    )


async def react(running: Running, to: str, target: str) -> Any:
    content = json.dumps({"type": "reaction", "reaction": {"message_id": target, "emoji": "+"}}).encode()
    return await running.client.call(
        lambda n: core.AcceptMessage(n, BUSINESS, to, "reaction", content, checked_late=True)
    )


async def failure(world: World, message_id: str) -> int:
    """Wait for the failed status of a message, and return its code."""
    await world.sink.signals.until(lambda: (message_id, "failed") in world.sink.labels())
    (post,) = [post for post in world.sink.posts if post.label == (message_id, "failed")]
    return int(post.body["statuses"][0]["errors"][0]["code"])


async def test_a_message_to_a_number_that_is_not_on_the_network_is_accepted_and_fails(world: World) -> None:
    world.add_phones(NUMBER)
    # With `check_unknown` off, v1 refuses numbers that were never checked.
    running = await world.start(check_unknown=False)
    await world.connected(running)
    accepted = await send(running, NOBODY)
    assert isinstance(accepted, core.Accepted)
    assert await failure(world, accepted.id) == 1013
    reached = await send(running, NUMBER)
    await world.sink.signals.until(lambda: (reached.id, "sent") in world.sink.labels())
    assert {found.to for found in world.network.sends} == {NUMBER}


async def test_a_message_to_an_unknown_recipient_needs_no_check_and_its_keys_are_the_result(world: World) -> None:
    world.add_phones(NUMBER)
    world.network.gates[frames.Check] = asyncio.Event()
    running = await world.start()
    await world.connected(running)
    reached, failed = await send(running, NUMBER), await send(running, NOBODY)
    await world.sink.signals.until(lambda: (reached.id, "sent") in world.sink.labels())
    assert await failure(world, failed.id) == 1013
    for _ in range(2):
        statuses = [contact.status for contact in await running.client.check(NUMBER, NOBODY)]
        assert statuses == ["valid", "invalid"]
        await running.stopped()
        running = await world.start(node="second")
        await world.connected(running)
    assert world.network.checks == []


async def test_a_message_that_names_another_identity_fails_with_480(world: World) -> None:
    world.add_phones(NUMBER)
    running = await world.start()
    await world.connected(running)
    first = await send(running, NUMBER)
    await world.sink.signals.until(lambda: (first.id, "sent") in world.sink.labels())
    known = await running.client.call(lambda n: core.GetIdentity(n, BUSINESS, NUMBER))
    same = await send(running, NUMBER, identity_hash=known.hash)
    await world.sink.signals.until(lambda: (same.id, "sent") in world.sink.labels())
    other = await send(running, NUMBER, identity_hash="AAAAAAAAAAA=")
    assert await failure(world, other.id) == 480


async def test_the_text_for_statuses_is_stored_and_read_again(world: World) -> None:
    world.add_phones(NUMBER)
    running = await world.start()
    await world.connected(running)
    marked = await send(running, NUMBER, callback_data="order 7 ü")
    plain = await send(running, NUMBER)
    await world.sink.signals.until(lambda: (plain.id, "sent") in world.sink.labels())
    await running.stopped()
    async with world.database.reading() as connection:
        rows = await messages.list_progress(connection, BUSINESS, [marked.id, plain.id])
    assert {row.id: row.callback_data for row in rows} == {marked.id: "order 7 ü", plain.id: None}
    assert {row.status for row in rows} == {Status.SENT}


async def test_a_reaction_to_a_message_of_the_conversation_is_sent(world: World) -> None:
    world.add_phones(NUMBER)
    running = await world.start()
    await world.connected(running)
    first = await send(running, NUMBER)
    reaction = await react(running, NUMBER, first.id)
    await world.sink.signals.until(lambda: (reaction.id, "sent") in world.sink.labels())
    # The row of a message that was read exists for a day only.
    expired = ids.MessageIds(lambda: int((time.time() - 2 * DAY) * 1000)).new()
    late = await react(running, NUMBER, expired)
    await world.sink.signals.until(lambda: (late.id, "sent") in world.sink.labels())


async def test_a_reaction_without_such_a_message_fails_with_1009(world: World) -> None:
    world.add_phones(NUMBER, OTHER)
    running = await world.start()
    await world.connected(running)
    first, elsewhere = await send(running, NUMBER), await send(running, OTHER)
    reaction = await react(running, NUMBER, first.id)
    old = ids.MessageIds(lambda: int((time.time() - 31 * DAY) * 1000)).new()
    for target in ("ABGGunknown", ids.MessageIds().new(), old, elsewhere.id, reaction.id):
        refused = await react(running, NUMBER, target)
        assert await failure(world, refused.id) == 1009, target
