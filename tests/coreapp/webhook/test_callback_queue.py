"""The callback queue: nothing lost, nothing twice, one subject in order, whatever spills to the database."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coreapp.capacity import CapacityGate
from coreapp.webhook.queue import SPACING, CallbackQueue
from tests.coreapp.signals import soon
from tests.manual_clock import ManualClock
from tidings.storage.business.callbacks import Callback


class Table:
    """Pending rows, as the database would list them."""

    def __init__(self) -> None:
        self.rows: dict[int, Callback] = {}
        self.dead: dict[int, Callback] = {}
        self.loads = 0

    async def load(self, after: int, limit: int) -> Sequence[Callback]:
        assert limit > 0
        self.loads += 1
        rows = [self.rows[seq] for seq in sorted(self.rows) if seq > after][:limit]
        await asyncio.sleep(0)
        # New objects, as from a database.
        return [Callback(r.seq, 0, "", r.subject, "", b"", 0, r.attempt, r.due_at) for r in rows]


def row(seq: int, subject: str, *, due_at: int = 0, volatile: bool = False) -> Callback:
    return Callback(seq, 0, "", subject, "status_change", b"", 0, 0, due_at, "", volatile=volatile)


async def turns(count: int = 20) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


OPERATIONS = st.lists(
    st.one_of(
        st.tuples(st.just("offer"), st.lists(st.integers(0, 3), min_size=1, max_size=4)),
        # Not due for the given number of seconds.
        st.tuples(st.just("hold"), st.lists(st.integers(0, 3), min_size=1, max_size=4), st.integers(1, 30)),
        # On disk now, and offered with the next offer, as between a commit and its effects.
        st.tuples(st.just("commit"), st.lists(st.integers(0, 3), min_size=1, max_size=4)),
        # Posted before they are on disk.
        st.tuples(st.just("post"), st.lists(st.integers(0, 3), min_size=1, max_size=4)),
        # Those that were not accepted are on disk now, and offered with the next offer.
        st.tuples(st.just("write")),
        st.tuples(st.just("take"), st.integers(1, 4)),
        st.tuples(st.just("done"), st.integers(0, 5)),
        st.tuples(st.just("serve"), st.integers(1, 8)),
        st.tuples(st.just("retry"), st.integers(0, 5), st.integers(0, 30)),
        st.tuples(st.just("mark_dead"), st.integers(0, 5)),
        st.tuples(st.just("revive"), st.integers(1, 3)),
        # Every n-th row, dead letters included.
        st.tuples(st.just("purge"), st.integers(1, 3)),
        st.tuples(st.just("make_due"), st.integers(1, 3)),
        st.tuples(st.just("pass"), st.integers(1, 40)),
        st.tuples(st.just("restart")),
    ),
    max_size=40,
)


@settings(max_examples=300)
@given(limit=st.integers(1, 6), operations=OPERATIONS)
def test_callbacks_are_handed_out_in_order_and_one_at_a_time_until_done(
    limit: int, operations: list[tuple[object, ...]]
) -> None:
    asyncio.run(play(limit, operations))


async def play(limit: int, operations: list[tuple[object, ...]]) -> None:
    table, clock = Table(), ManualClock()
    queue = CallbackQueue(limit, clock, table.load)
    await queue.start(0)
    seq = 0
    held: list[Callback] = []
    revived: set[int] = set()
    committed: list[Callback] = []
    unwritten: dict[int, Callback] = {}

    def write() -> None:
        table.rows.update(unwritten)
        committed.extend(unwritten.values())
        unwritten.clear()

    def end(callback: Callback) -> None:
        """End a callback that was accepted."""
        if unwritten.pop(callback.seq, None) is not None:
            queue.accepted_unwritten(callback)
        else:
            del table.rows[callback.seq]
        queue.done(callback)

    async def take() -> bool:
        task = asyncio.create_task(queue.take())
        await turns()
        if not task.done():
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            return False
        callback = task.result()
        waiting = [*table.rows.values(), *unwritten.values()]
        assert callback.seq in [r.seq for r in waiting], "it was done or buried before"
        assert callback.seq not in [other.seq for other in held], "it is being delivered already"
        assert callback.subject not in [other.subject for other in held], "two of one subject at a time"
        assert callback.due_at <= clock.now() * 1000, "not due yet"
        earlier = [r.seq for r in waiting if r.subject == callback.subject and r.seq < callback.seq]
        assert not set(earlier) - revived, "an earlier one of its subject waits"
        held.append(callback)
        return True

    for operation in operations:
        match operation:
            case ("offer" | "commit" as what, subjects):
                for subject in subjects:  # type: ignore[attr-defined]
                    seq += 1
                    committed.append(row(seq, f"s{subject}"))
                    table.rows[seq] = committed[-1]
                if what == "offer":
                    queue.offer(committed)
                    committed = []
            case ("hold", subjects, seconds):
                for subject in subjects:  # type: ignore[attr-defined]
                    seq += 1
                    due_at = int((clock.now() + int(str(seconds))) * 1000)
                    committed.append(row(seq, f"s{subject}", due_at=due_at))
                    table.rows[seq] = committed[-1]
                queue.offer(committed)
                committed = []
            case ("post", subjects):
                # The journal holds back those with rows whose commit has not ended.
                names = [f"s{subject}" for subject in subjects]  # type: ignore[attr-defined]
                if queue.keeps_up(2, new=len(names)) and not {callback.subject for callback in committed} & set(names):
                    for name in names:
                        seq += 1
                        unwritten[seq] = row(seq, name)
                        queue.offer_unwritten([unwritten[seq]])
            case ("write",):
                write()
            case ("take", count):
                for _ in range(int(str(count))):
                    await take()
            case ("serve", count):
                for _ in range(int(str(count))):
                    if await take():
                        end(held.pop())
            case ("done", index) if held:
                end(held.pop(int(str(index)) % len(held)))
            case ("retry", index, delay) if held:
                write()
                callback = held.pop(int(str(index)) % len(held))
                callback.due_at = int((clock.now() + int(str(delay))) * 1000)
                callback.attempt += 1
                table.rows[callback.seq].due_at = callback.due_at
                table.rows[callback.seq].attempt = callback.attempt
                queue.retry(callback)
            case ("mark_dead", index) if held:
                write()
                callback = held.pop(int(str(index)) % len(held))
                table.dead[callback.seq] = table.rows.pop(callback.seq)
                queue.done(callback)
            case ("revive", count):

                async def revive(count: int = int(str(count))) -> Sequence[Callback]:
                    back = [table.dead.pop(number) for number in sorted(table.dead)[:count]]
                    for callback in back:
                        callback.due_at = 0
                        table.rows[callback.seq] = callback
                        revived.add(callback.seq)
                    await asyncio.sleep(0)
                    return [row(callback.seq, callback.subject) for callback in back]

                await queue.add_revived(revive)
            case ("purge", step):
                every = [n for n in (*table.rows, *table.dead) if not n % int(str(step))]
                await purge(queue, table, set(every) - {callback.seq for callback in committed})
            case ("make_due", step):
                due = queue.make_due({n for n in table.rows if not n % int(str(step))})
                assert all(callback.attempt for callback in due)
                assert not {callback.seq for callback in due} & {callback.seq for callback in held}
            case ("pass", seconds):
                clock.advance(int(str(seconds)))
                queue.release_due()
            case ("restart",):
                await queue.close()
                held.clear()
                revived.clear()
                committed.clear()
                unwritten.clear()
                queue = CallbackQueue(limit, clock, table.load)
                await queue.start(len(table.rows))
        await turns(3)
        assert 0 <= queue.held <= len(queue)
    write()
    queue.offer(committed)
    # Every remaining callback is handed out in the end.
    for _ in range(2 * len(table.rows) + 2):
        clock.advance(60)
        queue.release_due()
        while await take():
            pass
        while held:
            callback = held.pop()
            del table.rows[callback.seq]
            queue.done(callback)
        await turns()
        if not table.rows:
            break
    assert not table.rows, "some never came"
    assert len(queue) == 0
    assert queue.held == 0
    await queue.close()


async def purge(queue: CallbackQueue, table: Table, chosen: set[int]) -> None:
    """Delete rows as the operator does, except those of subjects that are being posted."""

    async def choose() -> set[int]:
        return chosen

    async with queue.without(choose) as found:
        await asyncio.sleep(0)
        stored = {seq for seq in chosen & table.rows.keys() if seq not in found.discarded}
        posted = {seq for seq in stored if table.rows[seq].subject in found.posted}
        found.stored = len(stored - posted)
        for seq in chosen - posted:
            table.rows.pop(seq, None)
            table.dead.pop(seq, None)


async def test_a_purged_callback_is_replaced_by_the_next_of_its_subject() -> None:
    clock = ManualClock()
    later = int(clock.now() * 1000) + 5000
    table = Table()
    queue = CallbackQueue(10, clock, table.load)
    await queue.start(0)
    rows = [row(1, "a", due_at=later), row(2, "a"), row(3, "b"), row(4, "b"), row(5, "c")]
    table.rows = {callback.seq: callback for callback in rows}
    queue.offer(rows)
    posted = await queue.take()
    assert posted.seq == 3
    await purge(queue, table, {1, 3, 4, 77})
    assert set(table.rows) == {2, 3, 5}
    assert len(queue) == 3
    assert queue.held == 0
    assert [(await queue.take()).seq for _ in range(2)] == [5, 2]
    queue.done(posted)
    assert len(queue) == 2
    await queue.close()


async def test_held_callbacks_are_counted_separately_and_age_from_their_due_time() -> None:
    clock = ManualClock()
    now = int(clock.now() * 1000)

    def held(seq: int, subject: str, seconds: int) -> Callback:
        due_at = now + 1000 * seconds
        return Callback(seq, 0, "", subject, "status_change", b"", due_at, due_at=due_at)

    def measured() -> tuple[float, ...]:
        return len(queue), queue.held, queue.age()

    queue = CallbackQueue(10, clock, Table().load)
    await queue.start(0)
    queue.offer([held(1, "a", 1), held(2, "a", 1), held(3, "b", 3)])
    assert measured() == (3, 3, 0)
    clock.advance(1.5)
    queue.release_due()
    assert measured() == (3, 1, 0.5)
    first = await queue.take()
    assert measured() == (3, 1, 0)
    first.due_at = now + 60_000
    queue.retry(first)
    clock.advance(10)
    queue.release_due()
    # The retried one has been due since the first second. It does not count as held.
    assert measured() == (3, 0, 10.5)
    await queue.close()


async def test_a_clock_set_back_does_not_prolong_the_hold_of_callbacks() -> None:
    clock = ManualClock()
    queue = CallbackQueue(10, clock, Table().load)
    await queue.start(0)
    tried = row(1, "tried", due_at=int((clock.now() + 9000) * 1000))
    tried.attempt = 1
    queue.offer([tried, row(2, "held", due_at=int((clock.now() + 1) * 1000))])
    clock.jump(-3600)
    clock.advance(1)
    queue.release_due()
    assert (await queue.take()).seq == 2
    queue.offer([row(3, "committed before", due_at=int((clock.now() + 3601) * 1000))])
    assert queue.ready == 1
    assert (await queue.take()).seq == 3
    assert not queue.ready
    await queue.close()


async def test_a_purge_after_the_clock_was_set_back_does_not_prolong_the_wait_for_a_retry() -> None:
    async def choose() -> list[int]:
        return [2]

    clock = ManualClock()
    queue = CallbackQueue(10, clock, Table().load)
    await queue.start(0)
    tried = row(1, "tried", due_at=int((clock.now() + 30) * 1000))
    tried.attempt = 1
    held = row(3, "held", due_at=int((clock.now() + 5) * 1000))
    queue.offer([tried, row(2, "deleted"), held])
    clock.jump(-60)
    async with queue.without(choose):
        pass
    clock.advance(5)
    queue.release_due()
    assert queue.ready == 1
    assert (await queue.take()).seq == 3
    clock.advance(24)
    queue.release_due()
    assert queue.ready == 0
    clock.advance(1)
    queue.release_due()
    assert queue.ready == 1


async def test_a_clock_set_back_does_not_prolong_the_wait_for_a_retry() -> None:
    clock = ManualClock()
    queue = CallbackQueue(10, clock, Table().load)
    await queue.start(0)
    tried = row(1, "tried", due_at=int((clock.now() + 30) * 1000))
    tried.attempt = 1
    queue.offer([tried])
    clock.jump(-3600)
    clock.advance(29)
    queue.release_due()
    assert not queue.ready
    clock.advance(1)
    queue.release_due()
    assert queue.ready == 1
    await queue.close()


async def test_held_callbacks_share_one_timer(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = ManualClock()
    now = int(clock.now() * 1000)
    loop = asyncio.get_running_loop()
    timers: list[float] = []
    call_at = loop.call_at

    def noted(when: float, *more: Any) -> asyncio.TimerHandle:
        timers.append(when - loop.time())
        return call_at(when, *more)

    monkeypatch.setattr(loop, "call_at", noted)
    queue = CallbackQueue(2000, clock, Table().load)
    await queue.start(0)
    for n in range(1000):
        queue.offer([row(n + 1, f"s{n}", due_at=now + 60_000 + n)])
    assert len(timers) == 1
    clock.advance(60)
    queue.release_due()
    # The next is due in a millisecond, and 20 others before the next poll.
    assert queue.ready == 1
    assert timers[1] == pytest.approx(SPACING, abs=0.005)
    await queue.close()


async def test_a_scheduled_callback_blocks_only_its_own_subject() -> None:
    clock = ManualClock()
    queue = CallbackQueue(10, clock, Table().load)
    await queue.start(0)
    queue.offer([row(1, "a"), row(2, "a"), row(3, "b")])
    first = await queue.take()
    first.due_at = int((clock.now() + 3) * 1000)
    queue.retry(first)
    assert queue.ready == 1
    assert (await queue.take()).seq == 3
    waiting = asyncio.create_task(queue.take())
    await turns()
    assert not waiting.done()
    clock.advance(3)
    queue.release_due()
    assert (await waiting).seq == 1
    queue.done(first)
    assert (await queue.take()).seq == 2
    await queue.close()


async def test_a_callback_goes_to_the_worker_that_has_waited_for_the_shortest_time() -> None:
    queue = CallbackQueue(10, ManualClock(), Table().load)
    await queue.start(0)
    workers = []
    for _ in range(4):
        workers.append(asyncio.create_task(queue.take()))
        await turns()
    # One that has left gets nothing, and the next one does.
    workers[3].cancel()
    await turns()
    queue.offer([row(1, "a"), row(2, "b")])
    await turns()
    assert [worker.done() for worker in workers] == [False, True, True, True]
    assert workers[3].cancelled()
    assert {(await worker).seq for worker in workers[1:3]} == {1, 2}
    queue.offer([row(3, "c")])
    assert (await workers[0]).seq == 3
    await queue.close()


async def test_a_callback_loaded_by_a_page_before_its_offer_is_handed_out_once() -> None:
    table = Table()
    committing: list[Callback] = []

    async def load(after: int, limit: int) -> Sequence[Callback]:
        for callback in committing:
            table.rows[callback.seq] = callback
        return await table.load(after, limit)

    queue = CallbackQueue(4, ManualClock(), load)
    await queue.start(0)
    first = [row(seq, f"s{seq}") for seq in range(1, 6)]
    table.rows = {callback.seq: callback for callback in first}
    queue.offer(first)
    committing = [row(6, "s6")]
    for _ in range(2):
        queue.done(await queue.take())
    await soon(lambda: table.loads == 2)
    await turns()
    assert len(queue) == 4
    queue.offer(committing)
    assert len(queue) == 4
    # A callback that is offered later is accepted as before.
    queue.done(await queue.take())
    queue.offer([row(7, "s7")])
    assert len(queue) == 4
    assert [(await queue.take()).seq for _ in range(4)] == [4, 5, 6, 7]
    await queue.close()


async def test_volatile_callbacks_beyond_twice_the_limit_are_dropped() -> None:
    queue = CallbackQueue(3, ManualClock(), Table().load)
    await queue.start(0)
    queue.offer([row(n, f"s{n}", volatile=True) for n in range(10)])
    assert len(queue) == 6
    await queue.close()


async def test_a_failed_page_load_is_retried() -> None:
    table = Table()
    failures = 3

    async def load(after: int, limit: int) -> Sequence[Callback]:
        nonlocal failures
        if failures and after:
            failures -= 1
            raise ConnectionError("the database is unreachable")
        return await table.load(after, limit)

    table.rows = {n: row(n, f"s{n}") for n in range(1, 5)}
    queue = CallbackQueue(2, ManualClock(), load, retry_seconds=0.0)
    await queue.start(4)
    for _ in range(2):
        queue.done(await queue.take())
    await soon(lambda: failures == 0)
    assert (await queue.take()).seq == 3
    assert (await queue.take()).seq == 4
    await queue.close()


@given(limit=st.integers(1, 50), counts=st.lists(st.integers(0, 60), max_size=60))
def test_a_gate_closes_at_its_limit_and_opens_at_half(limit: int, counts: list[int]) -> None:
    gate = CapacityGate("job", limit)
    closed = False
    for count in counts:
        if count >= limit:
            closed = True
        elif count <= limit // 2:
            closed = False
        assert gate.is_open(count) is not closed


async def test_callbacks_from_recipients_are_counted_until_done() -> None:
    def theirs(seq: int) -> Callback:
        return Callback(seq, 0, "", f"s{seq}", "inbound_message", b"", 0)

    rows = {seq: theirs(seq) if seq % 2 else row(seq, f"s{seq}") for seq in range(1, 11)}

    async def load(after: int, limit: int) -> Sequence[Callback]:
        return [callback for seq, callback in rows.items() if seq > after][:limit]

    queue = CallbackQueue(4, ManualClock(), load)
    await queue.start(10, 5)
    queue.offer([theirs(11), row(12, "s12")])
    rows |= {11: theirs(11), 12: row(12, "s12")}
    assert (len(queue), queue.from_recipients) == (12, 6)
    for seq in range(1, 13):
        async with asyncio.timeout(30):
            callback = await queue.take()
        assert callback.seq == seq
        del rows[seq]
        queue.done(callback)
        assert (len(queue), queue.from_recipients) == (12 - seq, sum(1 for left in rows if left % 2))
    await queue.close()


async def test_recipients_are_served_round_robin_with_each_one_s_order_kept() -> None:
    queue = CallbackQueue(1000, ManualClock(), Table().load)
    await queue.start(0)
    flood = [dataclasses.replace(row(seq, f"s{seq}"), recipient="flooding") for seq in range(1, 301)]
    others = [dataclasses.replace(row(seq, f"s{seq}"), recipient=f"other {seq}") for seq in range(301, 304)]
    queue.offer([*flood, *others])
    taken = [await queue.take() for _ in range(303)]
    assert taken == [flood[0], *others, *flood[1:]]
    assert queue.ready == 0
    await queue.close()


async def test_a_retry_beyond_the_longest_backoff_is_due_because_another_host_s_clock_was_ahead() -> None:
    clock, table = ManualClock(), Table()
    # The owner before, whose clock was wrong by years, has failed to post it. Backoffs are a day at most.
    due_at = clock.now_ms() + 4 * 365 * 24 * 3600 * 1000
    table.rows[1] = dataclasses.replace(row(1, "failed"), attempt=1, due_at=due_at)
    queue = CallbackQueue(10, clock, table.load)
    await queue.start(1)
    clock.advance(24 * 3600)
    queue.release_due()
    assert (queue.ready, queue.scheduled) == (1, 0)
    await queue.close()
