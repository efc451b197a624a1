"""The id of a request follows its message through the queue, over the network and into the webhook."""

from __future__ import annotations

from tests.coreapp.conftest import World
from tests.coreapp.scripted_network import HOLD
from tidings.wire import core
from tidings.wire import device as frames

PHONE = "15550110001"


async def test_every_callback_of_a_message_carries_its_request_id(world: World) -> None:
    world.add_phones(PHONE)
    world.network.receipts = (frames.DELIVERED, frames.READ)
    running = await world.start()
    await world.connected(running)
    await running.client.check(PHONE)
    await running.client.send(PHONE, "first", request_id="order-4711")
    await world.sink.signals.until(lambda: len(world.sink.taken()) == 3)
    (sent,) = world.network.sends
    assert sent.trace == "order-4711"
    assert [post.headers["X-Request-ID"] for post in world.sink.taken()] == ["order-4711"] * 3


async def test_a_new_owner_keeps_the_request_id(world: World) -> None:
    world.add_phones(PHONE)
    running = await world.start()
    await world.connected(running)
    await running.client.check(PHONE)
    # The network accepts nothing until the first owner is dead, so that its job waits on disk.
    world.network.policy = lambda send: HOLD
    await running.client.send(PHONE, "first", request_id="order-4711")
    await running.killed()
    world.network.policy = lambda send: None
    await world.start(node="second")
    await world.sink.signals.until(lambda: len(world.sink.taken()) == 1)
    assert world.network.sends[-1].trace == "order-4711"
    assert world.sink.taken()[0].headers["X-Request-ID"] == "order-4711"


async def test_a_read_receipt_carries_the_request_id(world: World) -> None:
    running, phone, _ = await world.start_with_session(PHONE)
    kind, body = phone.write(b'{"type":"text","text":{"body":"thanks"}}')
    world.network.deliver(PHONE, kind, id="in-1", body=body, trace="from-the-phone")
    await world.sink.signals.until(lambda: ("in-1", "received") in world.sink.labels())
    (posted,) = [post for post in world.sink.posts if "messages" in post.body]
    assert posted.headers["X-Request-ID"] == "from-the-phone"
    await running.client.call(lambda n: core.MarkRead(n, "15550000000", "in-1", request_id="marking"))
    await world.network.signals.until(lambda: len(world.network.sends) == 2)
    assert (world.network.sends[1].kind, world.network.sends[1].trace) == (frames.READ, "marking")


async def test_a_trace_that_is_invalid_in_a_header_is_omitted(world: World) -> None:
    _, phone, _ = await world.start_with_session(PHONE)
    kind, body = phone.write(b'{"type":"text","text":{"body":"thanks"}}')
    world.network.deliver(PHONE, kind, id="in-1", body=body, trace="a\r\nX-Evil: 1")
    await world.sink.signals.until(lambda: ("in-1", "received") in world.sink.labels())
    (posted,) = [post for post in world.sink.posts if "messages" in post.body]
    assert "X-Request-ID" not in posted.headers
    assert "X-Evil" not in posted.headers
