"""A message through a whole Coreapp: accepted, encrypted, sent, its statuses posted; and a reply back."""

from __future__ import annotations

from tests.coreapp.conftest import World
from tidings.wire import core
from tidings.wire import device as frames


async def test_a_recipient_decrypts_a_message_and_its_three_statuses_are_posted(world: World) -> None:
    (phone,) = world.add_phones("15550110001")
    world.network.receipts = (frames.DELIVERED, frames.READ)
    running = await world.start()
    await world.connected(running)

    (contact,) = await running.client.check("+1 555 011-0001")
    assert (contact.input, contact.status, contact.wa_id) == ("+1 555 011-0001", "valid", "15550110001")
    response = await running.client.send("15550110001", "first")
    assert isinstance(response, core.Accepted)

    await world.sink.signals.until(lambda: len(world.sink.taken()) == 3)
    assert world.sink.labels() == [(response.id, "sent"), (response.id, "delivered"), (response.id, "read")]
    (send,) = world.network.sends
    assert phone.read(send.kind, send.body) == {"type": "text", "text": {"body": "first"}}
    await world.until_jobs(0)


async def test_a_reply_is_posted_and_the_next_message_needs_no_pre_key(world: World) -> None:
    (phone,) = world.add_phones("15550110001")
    running = await world.start()
    await world.connected(running)
    await running.client.check("15550110001")
    await running.client.send("15550110001", "one")
    await world.network.signals.until(lambda: len(world.network.sends) == 1)
    first = world.network.sends[0]
    assert first.kind == frames.PREKEY
    phone.read(first.kind, first.body)

    kind, body = phone.write(b'{"type":"text","text":{"body":"thanks \xe2\x9c\x93"}}')
    world.network.deliver("15550110001", kind, id="in-1", body=body, timestamp=1_700_000_000_123)
    await world.sink.signals.until(lambda: ("in-1", "received") in world.sink.labels())
    (posted,) = [post for post in world.sink.posts if "messages" in post.body]
    assert posted.body == {
        "contacts": [{"profile": {"name": "15550110001"}, "wa_id": "15550110001"}],
        "messages": [
            {
                "from": "15550110001",
                "id": "in-1",
                "timestamp": "1700000000",
                "type": "text",
                "text": {"body": "thanks ✓"},
            }
        ],
    }
    await world.network.signals.until(lambda: world.network.acknowledged == ["in-1"])

    await running.client.send("15550110001", "two")
    await world.network.signals.until(lambda: len(world.network.sends) == 2)
    second = world.network.sends[1]
    assert second.kind == frames.MESSAGE
    assert phone.read(second.kind, second.body) == {"type": "text", "text": {"body": "two"}}
