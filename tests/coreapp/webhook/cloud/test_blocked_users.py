"""A blocked user: no message of the user is reported, and none is sent to the user."""

from __future__ import annotations

from tests import statements
from tests.coreapp import media_scene as scene
from tests.coreapp.conftest import BUSINESS, Running, World
from tests.coreapp.phones import Phone
from tests.coreapp.webhook.cloud.test_cloud_webhooks import TEXT, CloudSink, cloud_sink, rows, subscribe
from tidings.storage.business import blocked_users, changes
from tidings.storage.business.blocked_users import BlockedUser
from tidings.wire import core
from tidings.wire.cloud import wamid

__all__ = ["cloud_sink"]
BAD, GOOD = "15550110001", "15550110002"


async def begin(world: World) -> tuple[Running, Phone, Phone]:
    """Start a Coreapp, and two phones that have sessions with it."""
    bad, good = world.add_phones(BAD, GOOD)
    scene.Inbox(world, bad, good)
    running = await world.start()
    await world.connected(running)
    await running.client.check(BAD, GOOD)
    for number in (BAD, GOOD):
        await running.client.send(number)
    await world.network.signals.until(lambda: bad.record is not None and good.record is not None)
    return running, bad, good


async def change(world: World, running: Running, *, blocked: bool) -> None:
    """Block or unblock a user, as a Webapp does."""
    async with world.database.transaction() as connection:
        if blocked:
            await blocked_users.add(connection, [BlockedUser(BUSINESS, BAD, 1)])
        else:
            await blocked_users.remove(connection, BUSINESS, [BAD])
        await changes.note(connection, changes.BLOCKED_USERS)
    await running.client.call(lambda n: core.SettingsChanged(n, BUSINESS))


def write(world: World, phone: Phone, message_id: str) -> None:
    kind, body = phone.write(TEXT)
    world.network.deliver(phone.number, kind, id=message_id, body=body)


def received(message_id: str, sender: str) -> tuple[str, str]:
    return wamid.encode(message_id, sender, by_recipient=True), "text"


async def test_messages_of_a_blocked_user_are_acknowledged_and_reported_to_no_webhook(
    world: World, cloud_sink: CloudSink
) -> None:
    await subscribe(world, cloud_sink.url)
    running, bad, good = await begin(world)
    await change(world, running, blocked=True)
    write(world, bad, "in-1")
    await world.network.signals.until(lambda: "in-1" in world.network.acknowledged)
    write(world, good, "in-2")
    await cloud_sink.taken(received("in-2", GOOD))
    await world.sink.signals.until(lambda: ("in-2", "received") in world.sink.labels())
    await change(world, running, blocked=False)
    # A repetition of the dropped message is a duplicate, a new one is reported.
    write(world, bad, "in-1")
    await world.network.signals.until(lambda: world.network.acknowledged.count("in-1") == 2)
    write(world, bad, "in-3")
    await cloud_sink.taken(received("in-3", BAD))
    await world.sink.signals.until(lambda: ("in-3", "received") in world.sink.labels())
    assert received("in-1", BAD) not in cloud_sink.labels()
    assert ("in-1", "received") not in world.sink.labels()
    assert not [subject for _, subject in await rows(world) if "in-1" in subject]


async def test_a_message_to_a_blocked_user_fails_with_131026(world: World, cloud_sink: CloudSink) -> None:
    await subscribe(world, cloud_sink.url)
    running, _, _ = await begin(world)
    await change(world, running, blocked=True)
    sent = len(world.network.sends)
    response = await running.client.call(
        lambda n: core.AcceptMessage(n, BUSINESS, BAD, "text", TEXT, checked_late=True)
    )
    await cloud_sink.taken((wamid.encode(response.id, BAD), "failed"))
    (status,) = [
        status
        for post in cloud_sink.posts
        for value in post.values
        for status in value.get("statuses", ())
        if status["id"] == wamid.encode(response.id, BAD)
    ]
    assert (status["errors"][0]["code"], status["errors"][0]["title"]) == (131026, "Message undeliverable")
    assert status["errors"][0]["error_data"] == {"details": "the business has blocked the recipient"}
    assert await scene.failure(world, response.id) == {
        "code": 1007,
        "title": "Recipient blocked to receive message",
        "details": "the business has blocked the recipient",
    }
    assert len(world.network.sends) == sent
    await change(world, running, blocked=False)
    again = await running.client.send(BAD)
    await cloud_sink.taken((wamid.encode(again.id, BAD), "sent"))


async def test_the_block_list_is_read_when_a_shard_is_opened(world: World) -> None:
    running, _, _ = await begin(world)
    await change(world, running, blocked=True)
    await running.stopped()
    again = await world.start(node="second")
    assert again.shard.context.config.blocked == {BAD}


async def test_undecryptable_messages_of_a_blocked_user_are_reported_to_no_webhook(
    world: World, cloud_sink: CloudSink
) -> None:
    await subscribe(world, cloud_sink.url)
    running, bad, good = await begin(world)
    await change(world, running, blocked=True)
    kind, body = bad.write(TEXT)
    world.network.deliver(BAD, kind, id="in-1", body=body[:-1] + bytes([body[-1] ^ 1]))
    await world.network.signals.until(lambda: "in-1" in world.network.acknowledged)
    write(world, good, "in-2")
    await cloud_sink.taken(received("in-2", GOOD))
    async with world.database.reading() as connection:
        found = await connection.exec_driver_sql("SELECT COUNT(*) FROM undecrypted_messages")
        assert found.scalar_one() == 0


async def test_a_list_is_read_again_only_after_its_own_changes(world: World) -> None:
    running = await world.start()
    await world.connected(running)
    with statements.recorded("SELECT blocked_users.wa_id") as found:
        async with world.database.transaction() as connection:
            await blocked_users.add(connection, [BlockedUser("15550000001", BAD, 1)])
            await changes.note(connection, changes.BLOCKED_USERS)
        await running.client.call(lambda n: core.SettingsChanged(n, BUSINESS))
        assert found == []
        await change(world, running, blocked=True)
        assert len(found) == 1
