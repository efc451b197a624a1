"""Quotas of mailboxes and rate limits of pairs: a refused envelope arrives later, in order, and others have room."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness import metrics
from network.routing import mailbox_usage
from network.routing.mailbox_usage import MailboxUsages
from network.routing.quotas import MailboxUsage, QuotaCheck, SenderUsage, SenderUsageCount
from network.settings import Quotas
from tests.manual_clock import ManualClock
from tests.network.group_support import changes, group_send, make
from tests.network.support import ALICE, BOB, CAROL, Client, Network, ids, stored
from tidings.storage.database import Database
from tidings.storage.network import mailbox
from tidings.wire import device

LIMITS = Quotas(mailbox=100, share=60, mailbox_bytes=10**9, share_bytes=10**9, pair_rate=10, pair_burst=20)


def usage_of(**waiting: int) -> MailboxUsage:
    usage = MailboxUsage(SenderUsageCount(), 0.0)
    for sender, envelopes in waiting.items():
        usage.put(sender, envelopes, 0)
    return usage


def fill(judge: QuotaCheck, usage: MailboxUsage, sender: str, size: int = 1) -> int:
    """Return how many more envelopes of this sender have room."""
    taken = 0
    while judge.has_room(usage, share := usage.of_sender(sender, 0.0), size):
        usage.add(share, size)
        taken += 1
    return taken


def test_senders_share_a_mailbox_fairly_and_a_new_sender_always_has_room() -> None:
    judge, usage = QuotaCheck(LIMITS), usage_of()
    assert fill(judge, usage, "a") == 50
    assert fill(judge, usage, "b") == 25
    assert fill(judge, usage, "c") == 13
    assert fill(judge, MailboxUsage(SenderUsageCount(), 0.0), "x" * 15) == 50
    strict = QuotaCheck(LIMITS.model_copy(update={"share": 10}))
    assert fill(strict, usage_of(), "a") == 10


@given(sizes=st.lists(st.integers(1, 400), max_size=60), quota=st.integers(1, 2000))
def test_no_sender_and_no_mailbox_exceeds_its_byte_quota(sizes: list[int], quota: int) -> None:
    judge = QuotaCheck(Quotas(mailbox_bytes=2000, share_bytes=quota))
    usage = usage_of()
    for turn, size in enumerate(sizes):
        share = usage.of_sender(str(turn % 3), 0.0)
        if judge.has_room(usage, share, size):
            usage.add(share, size)
        assert share.bytes <= quota
    assert usage.bytes == sum(share.bytes for share in usage.by_sender.values()) <= 2000


def test_a_pair_has_a_burst_then_a_rate_and_a_refused_envelope_keeps_its_place() -> None:
    judge, share, now = QuotaCheck(LIMITS), SenderUsage(), 100.0
    for n in range(20):
        assert judge.check_rate(share, f"m{n}", now) is None
        judge.passed(share, now)
    refusal = judge.check_rate(share, "m20", now)
    assert refusal is not None
    assert (refusal.reason, refusal.retry_after) == (device.RATE_LIMITED, 1)
    now += 1
    assert judge.check_rate(share, "m21", now) is refusal, "m20 goes first, though there are tokens again"
    assert judge.check_rate(share, "m20", now) is None
    judge.passed(share, now)
    assert judge.check_rate(share, "m21", now) is None


def test_an_abandoned_refused_envelope_blocks_its_sender_only_briefly() -> None:
    judge, share = QuotaCheck(LIMITS), SenderUsage()
    assert judge.full(share, "given up", 0.0).reason == device.MAILBOX_FULL
    assert judge.check_rate(share, "next", 14.9) is not None
    assert judge.check_rate(share, "next", 15.0) is None


def test_a_rate_of_zero_disables_the_rate_limit() -> None:
    judge, share = QuotaCheck(LIMITS.model_copy(update={"pair_rate": 0.0})), SenderUsage()
    for n in range(1000):
        assert judge.check_rate(share, str(n), 0.0) is None
        judge.passed(share, 0.0)


@given(
    sent=st.lists(st.tuples(st.sampled_from("ab"), st.integers(0, 60), st.floats(0, 0.3)), max_size=80),
    share=st.integers(1, 30),
    burst=st.integers(1, 20),
)
def test_the_fast_path_and_the_slow_path_admit_the_same_envelopes(
    sent: list[tuple[str, int, float]], share: int, burst: int
) -> None:
    quotas = Quotas(mailbox=40, share=share, mailbox_bytes=900, share_bytes=500, pair_rate=8, pair_burst=burst)
    judge, now = QuotaCheck(quotas), 100.0
    short, long = usage_of(), usage_of()
    for n, (sender, size, pause) in enumerate(sent):
        now += pause
        own = long.of_sender(sender, now)
        admitted = judge.check_rate(own, f"m{n}", now) is None and judge.has_room(long, own, size)
        if admitted:
            judge.passed(own, now)
            long.add(own, size)
        own.refusal = None
        assert judge.passes(short, short.of_sender(sender, now), size, now) == admitted
    assert (short.envelopes, short.bytes) == (long.envelopes, long.bytes)
    assert short.by_sender.keys() == long.by_sender.keys()
    assert all(short.by_sender[key].full_at == share.full_at for key, share in long.by_sender.items())


def test_idle_sender_usages_are_evicted_unless_they_hold_envelopes() -> None:
    total = SenderUsageCount()
    usage = MailboxUsage(total, 0.0)
    waiting = usage.of_sender("waiting", 0.0)
    usage.add(waiting, 100)
    for n in range(10_000):
        share = usage.of_sender(str(n), float(n))
        share.full_at = n + 5.0
    assert len(usage.by_sender) < 200
    assert total.count == len(usage.by_sender)
    assert usage.by_sender["waiting"] is waiting


def test_sender_usages_in_memory_are_bounded_by_evicting_the_oldest_mailbox(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mailbox_usage, "MAX_SENDER_USAGES", 100)

    class Nothing:
        async def count(self, recipients: object) -> dict[str, list[object]]:
            return {}

    table = MailboxUsages(Nothing(), Quotas(), ManualClock())  # type: ignore[arg-type]
    for n in range(50):
        usage = table.learn(str(n), ())
        for sender in range(10):
            usage.add(usage.of_sender(str(sender), 0.0), 1)
        table.trim()
    assert table.get("49") is not None
    assert table.get("0") is None
    assert metrics.value("tidings_network_mailbox_shares") == 100


async def refusal(client: Client) -> tuple[str, int]:
    frame = await client.next(device.Refused)
    return frame.reason, frame.retry_after


@pytest.mark.one_node
async def test_a_full_quota_refuses_until_the_recipient_fetches_even_after_a_restart(
    network: Network,
) -> None:
    limits = Quotas(mailbox=20, share=5)
    await network.start(quotas=limits)
    await network.register(ALICE, BOB, CAROL)
    alice, carol = await network.connect(ALICE), await network.connect(CAROL)
    for i in range(5):
        alice.send(ALICE, BOB, f"m{i}")
    await alice.accepted(5)
    for id in ("m5", "m6"):
        alice.send(ALICE, BOB, id)
        assert await refusal(alice) == (device.MAILBOX_FULL, 5)
    # A repeated envelope that is stored already is accepted, and other senders have room.
    alice.send(ALICE, BOB, "m0")
    await alice.accepted(1)
    carol.send(CAROL, BOB, "of-carol")
    await carol.accepted(1)
    assert len(await stored(network)) == 6

    await network.stop()
    await network.start(quotas=limits)
    alice = await network.connect(ALICE)
    alice.send(ALICE, BOB, "m5")
    assert await refusal(alice) == (device.MAILBOX_FULL, 5)
    bob = await network.connect(BOB)
    deliveries = await bob.deliveries(6)
    bob.ack(deliveries[0])
    await bob.nothing_came()
    alice.send(ALICE, BOB, "m5")
    assert ids(await bob.deliveries(1)) == ["m5"]
    alice.send(ALICE, BOB, "m6")
    # The acceptance of the earlier one comes before or after the response to this one.
    frames = [await alice.next_frame() for _ in range(2)]
    assert {type(frame) for frame in frames} == {device.Accepted, device.Refused}


async def test_expired_envelopes_free_quota(network: Network) -> None:
    clock = ManualClock()
    await network.start(clock=clock, quotas=Quotas(mailbox=4), expiry_interval=0.05)
    await network.register(ALICE, BOB)
    alice = await network.connect(ALICE)
    for i in range(2):
        alice.send(ALICE, BOB, f"m{i}", ttl=10)
    await alice.accepted(2)
    alice.send(ALICE, BOB, "m2")
    assert (await refusal(alice))[0] == device.MAILBOX_FULL
    clock.advance(11)
    for notice in await alice.deliveries(2):
        alice.ack(notice)
    n = alice.send(ALICE, BOB, "m2")
    assert await alice.accepted(1) == [n]


async def test_an_outdated_count_is_refreshed_before_a_refusal(network: Network) -> None:
    clock = ManualClock()
    await network.start(clock=clock, quotas=Quotas(mailbox=4))
    await network.register(ALICE, BOB)
    alice = await network.connect(ALICE)
    for i in range(2):
        alice.send(ALICE, BOB, f"m{i}")
    await alice.accepted(2)
    alice.send(ALICE, BOB, "m2")
    assert (await refusal(alice))[0] == device.MAILBOX_FULL
    database = Database(network.database, "network")
    async with database.transaction() as connection:
        await connection.execute(mailbox.table.delete())
    await database.close()
    alice.send(ALICE, BOB, "m2")
    assert (await refusal(alice))[0] == device.MAILBOX_FULL
    clock.advance(60.0)
    sent = [alice.send(ALICE, BOB, f"m{i}") for i in (2, 3)]
    assert await alice.accepted(2) == sent, "in their order, though the first waited for the count"


async def test_network_notices_are_never_refused_and_count_for_no_sender(network: Network) -> None:
    await network.start(quotas=Quotas(mailbox=2))
    await network.register(ALICE, BOB)
    group = await make(network, ALICE, BOB)
    alice = await network.connect(ALICE)
    await changes(alice, 2)
    await network.stop()
    await network.start(quotas=Quotas(mailbox=2))
    alice = await network.connect(ALICE)
    n = alice.send(ALICE, BOB, "m1")
    assert await alice.accepted(1) == [n]
    assert (await stored(network))[-1] == "m1"
    assert group.startswith(ALICE)


@pytest.mark.one_node
async def test_only_a_member_with_a_full_mailbox_misses_a_group_message(network: Network) -> None:
    dropped = metrics.value("tidings_network_group_copies_dropped_total")
    await network.start(quotas=Quotas(share=3))
    await network.register(ALICE, BOB, CAROL)
    group = await make(network, ALICE, BOB, CAROL)
    alice, bob = await network.connect(ALICE), await network.connect(BOB)
    await changes(alice, 3)
    await changes(bob, 2)
    for i in range(5):
        n = group_send(alice, ALICE, group, f"m{i}", 3)
        assert await alice.accepted(1) == [n]
        bob.ack(*(await bob.deliveries(1)))
    await bob.nothing_came()
    carol = await network.connect(CAROL)
    await changes(carol, 1)
    assert ids(await carol.deliveries(3)) == ["m0", "m1", "m2"]
    await carol.nothing_came()
    assert metrics.value("tidings_network_group_copies_dropped_total") == dropped + 2


async def test_a_pair_has_its_own_rate_limit_in_groups(network: Network) -> None:
    clock = ManualClock()
    await network.start(clock=clock, quotas=Quotas(pair_rate=1, pair_burst=3))
    await network.register(ALICE, BOB, CAROL)
    group = await make(network, ALICE, BOB)
    alice = await network.connect(ALICE)
    await changes(alice, 2)
    for to in (BOB, CAROL):
        sent = [alice.send(ALICE, to, f"{to}-{i}") for i in range(3)]
        assert await alice.accepted(3) == sent
        alice.send(ALICE, to, f"{to}-3")
        assert await refusal(alice) == (device.RATE_LIMITED, 1)
    sent = [group_send(alice, ALICE, group, f"g{i}", 2) for i in range(3)]
    assert await alice.accepted(3) == sent
    group_send(alice, ALICE, group, "g3", 2)
    assert await refusal(alice) == (device.RATE_LIMITED, 1)
    clock.advance(1)
    n = group_send(alice, ALICE, group, "g3", 2)
    assert await alice.accepted(1) == [n]
