"""Recipients that try to be expensive: rows stay small, other senders are served, honest messages are read."""

from __future__ import annotations

import asyncio
import dataclasses
import itertools
from collections.abc import Iterator, Sequence

import pytest
import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from coreapp.journal.change import Change
from coreapp.receiving import inbox, work_budget
from coreapp.recovery import session_repair
from harness import polling
from tests.coreapp.conftest import BUSINESS, Killed, World
from tests.coreapp.phones import KINDS, Phone
from tests.coreapp.receiving.test_events import with_session
from tests.manual_clock import ManualClock
from tidings import e2ee
from tidings.e2ee import chains, record
from tidings.storage.business import jobs, sessions
from tidings.wire import device as frames

NUMBER = "15550110001"
OTHER = "15550110002"
TEXT = b'{"type":"text","text":{"body":"hi"}}'
NULL = b'{"type":"null"}'


def first_message(phone: Phone, business: e2ee.PreKeyBundle, ahead: int) -> bytes:
    """Return the first message of a new session, with `ahead` keys skipped."""
    phone.record = e2ee.SessionRecord.initiate(phone.identity, phone.registration_id, business)
    sending = phone.record._sending
    for _ in range(ahead):
        sending.chain_key, _ = chains.step(sending.chain_key, sending.counter)
        sending.counter += 1
    kind, body = phone.record.encrypt(NULL)
    assert KINDS[kind] == frames.PREKEY
    return body


def without_kyber(bundle: e2ee.PreKeyBundle) -> e2ee.PreKeyBundle:
    return dataclasses.replace(bundle, kyber_prekey_id=None, kyber_prekey=None, kyber_prekey_signature=None)


async def acknowledged(world: World, *ids: str) -> None:
    await world.network.signals.until(lambda: set(ids) <= set(world.network.acknowledged))


async def row_of(world: World, peer: str) -> sessions.SealedSession:
    async def read(connection: AsyncConnection) -> sessions.SealedSession:
        (found,) = await sessions.list_sessions(connection, BUSINESS, [peer])
        return found

    return await world.database.query(read)


async def test_300_first_messages_far_ahead_leave_a_small_session_row(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(work_budget, "BURST", 10_000_000)
    monkeypatch.setattr(work_budget, "COMMON_BURST", 10_000_000)
    running = await world.start()
    await world.connected(running)
    (phone,) = world.add_phones(NUMBER)
    business = without_kyber(world.network.business_bundle(one_time=None))
    for start in range(0, 300, 50):
        ids = [f"first-{n}" for n in range(start, start + 50)]
        for id in ids:
            world.network.deliver(NUMBER, frames.PREKEY, id=id, body=first_message(phone, business, 2_000))
        await acknowledged(world, *ids)
        row = await row_of(world, NUMBER)
        assert record.MAX_LENGTH / 2 < len(row.receiving) < record.MAX_LENGTH + 1_000
    kind, body = phone.write(TEXT)
    world.network.deliver(NUMBER, kind, id="honest", body=body)
    await world.sink.signals.until(lambda: ("honest", "received") in world.sink.labels())
    # A record of this length is not kept in memory.
    assert running.shard.peers.sessions.in_memory(NUMBER) is None
    await running.stopped()

    again = await world.start(node="second")
    await world.connected(again)
    kind, body = phone.write(TEXT)
    world.network.deliver(NUMBER, kind, id="after", body=body)
    await world.sink.signals.until(lambda: ("after", "received") in world.sink.labels())


def hostile_first_messages(phone: Phone, business: e2ee.PreKeyBundle, count: int) -> Iterator[bytes]:
    """Yield first messages of five kinds, in turn: not a message at all, for unknown keys, with a wrong MAC, from an
    unknown identity, and for a new session that can be read."""
    nobodys = dataclasses.replace(business, signed_prekey_id=9_999)
    for n in range(count):
        somebody = Phone(phone.number)
        match n % 5:
            case 0:
                yield b"\x44garbage %d" % n
            case 1:
                yield first_message(phone, nobodys, 0)
            case 2:
                yield first_message(phone, business, 0)[:-1] + b"\0"
            case 3:
                yield first_message(somebody, business, 0)[:-1] + b"\0"
            case 4:
                yield first_message(phone, business, 0)


async def test_a_flood_of_first_messages_costs_limited_bundles_and_requests_per_hour(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session_repair, "MAX_REQUESTED", 150)
    clock = ManualClock()
    running, phone, _ = await with_session(world, clock=clock)
    business = world.network.business_bundle(one_time=None)
    (other,) = world.add_phones("15550110003")
    fetched, sent, responded = len(world.network.fetches), len(world.network.sends), 0
    for hour in (1, 2):
        for burst in range(4):
            ids = [f"flood-{hour}-{burst}-{n}" for n in range(50)]
            for id, body in zip(ids, hostile_first_messages(phone, business, len(ids)), strict=True):
                world.network.deliver(NUMBER, frames.PREKEY, id=id, body=body)
            kind, body = other.write(TEXT, business)
            world.network.deliver(other.number, kind, id=f"true-{hour}-{burst}", body=body)
            await acknowledged(world, *ids, f"true-{hour}-{burst}")
            await idle(world)
            nulls = [send for send in world.network.sends[sent:] if send.kind == frames.PREKEY]
            if len(nulls) > responded:
                # The phone replies on the session that was opened for it, so that nothing prevents the next renewal.
                responded = len(nulls)
                phone.read(nulls[-1].kind, nulls[-1].body)
                kind, body = phone.write(NULL)
                world.network.deliver(NUMBER, kind, id=f"answer-{responded}", body=body)
                await acknowledged(world, f"answer-{responded}")
        sends = world.network.sends[sent:]
        requested = [ref for send in sends if send.kind == frames.RETRY for ref in send.refs]
        assert len(world.network.fetches) - fetched == hour * session_repair.MAX_RENEWALS
        assert len([send for send in sends if send.kind == frames.PREKEY]) == hour * session_repair.MAX_RENEWALS
        assert (len(requested), len(set(requested))) == (hour * 150, hour * 150)
        assert {send.kind for send in sends} == {frames.PREKEY, frames.RETRY}
        clock.advance(session_repair.PERIOD + 1)
    await world.sink.signals.until(lambda: len(received(world)) == 8)
    assert received(world) == {f"true-{hour}-{burst}" for hour in (1, 2) for burst in range(4)}
    await running.stopped()


def received(world: World) -> set[str]:
    return {id for id, status in world.sink.labels() if status == "received"}


async def idle(world: World) -> None:
    """Wait until everything that follows from the acknowledged deliveries was sent and accepted."""

    async def is_idle() -> bool:
        return not await world.database.query(jobs_left)

    await polling.until(is_idle, pause=0.01)


async def jobs_left(connection: AsyncConnection) -> int:
    return int((await connection.execute(sa.select(sa.func.count()).select_from(jobs.table))).scalar_one())


async def test_a_long_batch_is_committed_and_acknowledged_in_parts_in_order(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(inbox, "ITERATION_SECONDS", 0.0)
    running = await world.start()
    await world.connected(running)
    phones = world.add_phones(NUMBER, OTHER)
    business = world.network.business_bundle(one_time=None)
    journal, link = running.shard.context.journal, running.shard.link
    put, acknowledge = journal.put, link.acknowledge
    commits: list[asyncio.Future[None]] = []
    parts: list[tuple[list[str], int]] = []
    turns = 0

    def putting(change: Change, *, urgent: bool = False) -> asyncio.Future[None]:
        committed = put(change, urgent=urgent)
        # Requests for resending are committed apart from this.
        if change.new_messages:
            commits.append(committed)
        return committed

    def acknowledging(deliveries: Sequence[frames.Deliver]) -> None:
        assert all(commit.done() for commit in commits)
        parts.append(([delivery.id for delivery in deliveries], turns))
        acknowledge(deliveries)

    async def others() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    monkeypatch.setattr(journal, "put", putting)
    monkeypatch.setattr(link, "acknowledge", acknowledging)
    ids = []
    for n in range(12):
        phone = phones[n % 2]
        kind, body = (frames.MESSAGE, b"\x33garbage") if n % 5 == 4 else phone.write(TEXT, business)
        ids.append(f"in-{n:02}")
        world.network.deliver(phone.number, kind, id=ids[-1], body=body)
    busy = asyncio.create_task(others())
    await acknowledged(world, *ids)
    busy.cancel()
    assert [id for part, _ in parts for id in part] == ids
    assert all(len(part) == 1 for part, _ in parts)
    seen = [turn for _, turn in parts]
    assert all(later > earlier for earlier, later in itertools.pairwise(seen))
    await world.sink.signals.until(
        lambda: {id for id, status in world.sink.labels() if status == "received"} >= {*ids} - {"in-04", "in-09"}
    )
    for number in (0, 1):
        heard = [id for id, status in world.sink.labels() if status == "received" and int(id[3:]) % 2 == number]
        assert heard == sorted(heard)


async def test_deliveries_unhandled_at_a_kill_are_redelivered(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inbox, "ITERATION_SECONDS", 0.0)
    running = await world.start()
    await world.connected(running)
    (phone,) = world.add_phones(NUMBER)
    business = world.network.business_bundle(one_time=None)
    journal, link = running.shard.context.journal, running.shard.link
    acknowledge = link.acknowledge

    def last_words(deliveries: Sequence[frames.Deliver]) -> None:
        acknowledge(deliveries)
        journal.fail(Killed("after the first part"))

    monkeypatch.setattr(link, "acknowledge", last_words)
    for n in range(3):
        kind, body = phone.write(TEXT, business)
        world.network.deliver(NUMBER, kind, id=f"in-{n}", body=body)
    await running.killed()
    assert set(world.network.acknowledged) <= {"in-0"}
    again = await world.start(node="second")
    await world.connected(again)
    await acknowledged(world, "in-1", "in-2")
    await world.sink.signals.until(
        lambda: {("in-0", "received"), ("in-1", "received"), ("in-2", "received")} <= set(world.sink.labels())
    )
    assert len({post.event_id for post in world.sink.posts}) == 3
