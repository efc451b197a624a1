"""Bodies of callbacks in the database: sealed, each for its own row."""

from __future__ import annotations

import dataclasses

import msgspec
import sqlalchemy as sa

from coreapp.callback_bodies import UNREADABLE, BodySealer
from harness import polling
from tests.coreapp.conftest import BUSINESS, World
from tests.coreapp.webhook.test_delivery import NUMBERS, running_with
from tests.coreapp.webhook.test_history import until
from tidings import e2ee
from tidings.storage.business import callback_history, callbacks
from tidings.storage.business.callback_history import EndedAttempt, EndedCallback, SealedPart, StoredCallback
from tidings.storage.business.callbacks import Callback

CANARY = b"what nobody reads on the disk"


def a_callback(seq: int) -> Callback:
    return Callback(seq, 0, BUSINESS, f"m{seq}", "inbound_message", b'{"body":"%s"}' % CANARY, 1_700_000_000_000)


async def stored(world: World) -> dict[int, bytes]:
    async with world.database.reading() as connection:
        rows = await connection.execute(sa.select(callbacks.table.c.seq, callbacks.table.c.body))
        return {row.seq: bytes(row.body) for row in rows}


def test_sealed_bodies_open_only_for_their_own_rows() -> None:
    sealer = BodySealer(e2ee.Sealer(e2ee.Keyring({1: e2ee.generate_data_key()})))
    day = 86_400_000_000 << 5
    rows = [a_callback(day - 1), a_callback(day), a_callback(day + 1), a_callback(5)]
    sealed = sealer.seal(rows)
    read = [dataclasses.replace(row, body=body) for row, body in zip(rows, sealed, strict=True)]
    assert list(sealer.open(read)) == rows
    moved = dataclasses.replace(read[1], seq=day + 2)
    of_another = dataclasses.replace(read[1], account="15550000001")
    unsealed = rows[0]
    assert [row.body for row in sealer.open([moved, of_another, unsealed])] == [b"", b"", b""]


async def test_queued_callbacks_are_sealed_and_posted_by_the_next_owner(world: World) -> None:
    world.sink.respond = lambda post: 500
    running = await running_with(world, 1)
    message = (await running.client.send(NUMBERS[0])).id
    await world.sink.signals.until(lambda: len(world.sink.posts) >= 1)
    await until(world, "failing", 1)
    bodies = await stored(world)
    assert bodies
    assert not any(message.encode() in body or body.startswith(b"{") for body in bodies.values())
    await running.stopped()
    world.sink.respond = lambda post: 200
    async with world.database.transaction() as connection:
        await connection.execute(callbacks.table.update().values(due_at=0))
    await world.start()
    await world.sink.signals.until(lambda: len(world.sink.taken()) == 1)
    assert world.sink.labels() == [(message, "sent")]


async def test_unsealed_callbacks_of_an_earlier_release_are_sealed_and_posted(world: World) -> None:
    await world.configure(webhooks={"url": ""})
    await (await world.start()).stopped()
    rows = [a_callback(seq) for seq in range(1, 1203)]
    async with world.database.transaction() as connection:
        await callbacks.enqueue(connection, rows[:-1], [row.body for row in rows[:-1]])
        await callbacks.mark_dead(connection, rows[-1:], [rows[-1].body])
    running = await world.start()
    bodies = await stored(world)
    assert len(bodies) == len(rows)
    assert not any(CANARY in body for body in bodies.values())
    world.sink.respond = lambda post: 200
    await world.configure(webhooks={"url": world.sink.url})
    await running.node.config.load()
    await world.sink.signals.until(lambda: len(world.sink.taken()) == len(rows) - 1)
    assert all(post.body == {"body": CANARY.decode()} for post in world.sink.taken())


async def test_a_body_moved_to_another_row_becomes_a_dead_letter_and_delays_no_other(world: World) -> None:
    await world.configure(webhooks={"url": ""})
    running = await world.start()
    sealer = running.shard.context.bodies
    await running.stopped()
    rows = [a_callback(seq) for seq in (1, 2, 3)]
    one, _, three = sealer.seal(rows)
    async with world.database.transaction() as connection:
        await callbacks.enqueue(connection, rows, [one, one, three])
    unreadable = UNREADABLE._value.get()
    await world.configure(webhooks={"url": world.sink.url})
    running = await world.start()
    await world.sink.signals.until(lambda: len(world.sink.taken()) == 2)

    async def two_are_gone() -> bool:
        return list(await stored(world)) == [2]

    await polling.until(two_are_gone, pause=0.01)
    assert {post.event_id for post in world.sink.taken()} == {"evt_1", "evt_3"}
    async with world.database.reading() as connection:
        [dead] = await callbacks.list_dead(connection)
    assert (dead.seq, dead.last_error) == (2, "the stored body cannot be read")
    assert UNREADABLE._value.get() == unreadable + 1


def test_texts_that_were_sealed_together_are_opened_once() -> None:
    opened = []

    class Counting(e2ee.Sealer):
        def open(self, blob: bytes, context: tuple[str | int, ...]) -> bytes:
            opened.append(context)
            return super().open(blob, context)

    bodies = BodySealer(Counting(e2ee.Keyring({1: b"k" * 32})))
    found = [a_callback(seq) for seq in range(1, 41)]
    ended = [EndedAttempt(one, 1, 5, 1, 200, b"ok") for one in found]
    parts = {}
    for first in (0, 20):
        (segment,) = callback_history.segments_of(ended[first : first + 20], bodies.seal_texts)
        parts[first] = msgspec.msgpack.decode(segment.texts, type=list[SealedPart])[0]
    damaged = SealedPart(77, parts[0].sealed)
    stored = [
        StoredCallback(EndedCallback(one.seq, 0, "m", "", "", 0, "", "", 1, 5, 1, 200, 0, place % 20), part)
        for part, rows in ((parts[0], found[:20]), (parts[20], found[20:]), (damaged, found[:2]))
        for place, one in enumerate(rows)
    ]
    texts = bodies.open_all_ended(BUSINESS, stored)
    assert [(one.body, one.response) for one in texts[:40]] == [(one.body, b"ok") for one in found]
    assert [one.body for one in texts[40:]] == [b"", b""]
    assert len(opened) == 3
