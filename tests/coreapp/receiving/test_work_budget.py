"""Work budget per sender: chain walks, session set-ups and vain look-ups consume it, and no other sender waits for
them."""

from __future__ import annotations

from prometheus_client import REGISTRY

from coreapp.receiving import inbox, work_budget
from coreapp.receiving.work_budget import WorkBudget
from coreapp.recovery import session_repair
from tests.coreapp.conftest import World
from tests.coreapp.phones import Phone
from tests.coreapp.receiving.forging import FAR, forged
from tests.coreapp.receiving.test_events import acknowledged, with_session
from tests.coreapp.receiving.test_hostile_peers import first_message
from tests.manual_clock import ManualClock
from tidings.e2ee import chains, pq_ratchet
from tidings.wire import device as frames

NUMBER = "15550110001"
OTHER = "15550110002"
TEXT = b'{"type":"text","text":{"body":"hi"}}'


def work() -> float:
    """Return the number of steps taken so far beyond the ordinary work."""
    return REGISTRY.get_sample_value("tidings_peer_work_steps_total", {"outcome": "taken"}) or 0.0


def pass_over(phone: Phone, messages: int) -> None:
    """Advance the phone's chains as if `messages` messages had been written and lost."""
    assert phone.record is not None, "no session"
    sending = phone.record._sending
    assert sending.pq_chain_key is not None
    for _ in range(messages):
        sending.chain_key, _ = chains.step(sending.chain_key, sending.counter)
        sending.pq_chain_key, _ = pq_ratchet.step(sending.pq_chain_key, sending.pq_index)
        sending.counter += 1
        sending.pq_index += 1


def test_a_sender_has_a_burst_and_then_the_rate_applies() -> None:
    clock = ManualClock()
    budget = WorkBudget(clock)
    assert budget.spend(NUMBER, 25_000)
    assert budget.spend(NUMBER, 25_000)
    assert not budget.spend(NUMBER, 25_000)
    # A refusal consumes nothing, and what is left can be used.
    assert budget.spend(NUMBER, 10_000)
    assert not budget.spend(NUMBER, 1)
    clock.advance(10)
    assert not budget.spend(NUMBER, int(10 * work_budget.RATE) + 1)
    assert budget.spend(NUMBER, int(10 * work_budget.RATE))
    # Another sender is not affected.
    assert budget.spend(OTHER, 25_000)


def test_only_long_chain_walks_consume_the_common_budget() -> None:
    budget = WorkBudget(ManualClock())
    walked = [budget.spend(f"1555011{n:04}", 25_000) for n in range(100)]
    assert sum(walked) * 25_000 <= work_budget.COMMON_BURST
    assert all(budget.spend(f"1555011{n:04}", work_budget.LONG - 1) for n in range(100))


def test_an_evicted_sender_starts_with_a_full_budget() -> None:
    budget = WorkBudget(ManualClock(), remembered=1)
    budget.consume(NUMBER, 10 * work_budget.BURST)
    assert budget.is_used_up(NUMBER)
    budget.consume(OTHER, 1)
    assert not budget.is_used_up(NUMBER)


async def test_honest_messages_are_read_after_300_forged_ones_exhaust_the_budget(
    world: World,
) -> None:
    running, phone, _ = await with_session(world, clock=ManualClock())
    message = (await running.client.send(OTHER)).id
    kind, body = phone.write(TEXT)
    world.network.deliver(NUMBER, kind, id="before", body=body)
    await acknowledged(world, "before")
    # Exhaust the renewals: with a new session, forged messages would be of an old one, and cheap.
    for _ in range(session_repair.MAX_RENEWALS):
        assert running.shard.recovery.session_repair.budget.renewals.take(NUMBER)
    taken = work()
    for n in range(300):
        world.network.deliver(NUMBER, frames.MESSAGE, id=f"forged-{n}", body=forged(phone, strange=n % 3 == 2))
    world.network.deliver(OTHER, frames.READ, id="read", refs=[message])
    await acknowledged(world, "read", "forged-299")
    # The walks of two messages, not of 200. The clock stands still.
    assert 2 * FAR <= work() - taken <= work_budget.BURST
    kind, body = phone.write(TEXT)
    world.network.deliver(NUMBER, kind, id="after", body=body)
    await world.sink.signals.until(lambda: ("after", "received") in world.sink.labels())


async def test_one_jump_over_a_full_chain_is_read_and_the_next_is_requested_again(world: World) -> None:
    running, phone, _ = await with_session(world)
    for id, ahead in (("begins", 0), ("far", FAR), ("farther", FAR)):
        pass_over(phone, ahead)
        kind, body = phone.write(TEXT)
        world.network.deliver(NUMBER, kind, id=id, body=body)
        await acknowledged(world, id)
    await world.sink.signals.until(lambda: {("begins", "received"), ("far", "received")} <= set(world.sink.labels()))
    await world.network.signals.until(
        lambda: any(send.kind == frames.RETRY and send.refs == ["farther"] for send in world.network.sends)
    )
    await running.stopped()


async def test_session_set_ups_beyond_the_budget_are_refused_until_it_refills(world: World) -> None:
    clock = ManualClock()
    running, phone, _ = await with_session(world, clock=clock)
    business = world.network.business_bundle(one_time=None)
    running.shard.receiving._work_budget.consume(NUMBER, work_budget.BURST)
    world.network.deliver(NUMBER, frames.PREKEY, id="refused", body=first_message(phone, business, 0))
    await acknowledged(world, "refused")
    assert phone.record is not None
    refused = phone.record.base_key
    kept = running.shard.peers.sessions.in_memory(NUMBER)
    assert kept is not None
    assert kept.base_key != refused
    clock.advance(60)
    world.network.deliver(NUMBER, frames.PREKEY, id="set-up", body=first_message(phone, business, 0))
    await acknowledged(world, "set-up")
    kept = running.shard.peers.sessions.in_memory(NUMBER)
    assert kept is not None
    assert kept.base_key == phone.record.base_key
    await running.stopped()


async def test_receipts_for_unknown_messages_exhaust_the_budget_and_are_then_cut(world: World) -> None:
    running, _, message = await with_session(world)
    ids = [f"vain-{n}" for n in range(work_budget.BURST // 1000)]
    for n, id in enumerate(ids):
        world.network.deliver(NUMBER, frames.READ, id=id, refs=[f"nothing-{n}-{m}" for m in range(1000)])
    await acknowledged(world, *ids)
    assert running.shard.receiving._work_budget.is_used_up(NUMBER)
    # A receipt of the size that devices send is handled completely, and so are those of other senders.
    world.network.deliver(NUMBER, frames.READ, id="long", refs=[*(f"n-{m}" for m in range(inbox.FEW_REFS)), message])
    world.network.deliver(NUMBER, frames.DELIVERED, id="short", refs=[message])
    await acknowledged(world, "long", "short")
    await world.sink.signals.until(lambda: "delivered" in world.sink.statuses_of(message))
    await running.stopped()
    assert "read" not in world.sink.statuses_of(message)
