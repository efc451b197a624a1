"""Downloads waiting in memory: none is lost and none is handed out twice, however table and memory overlap."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from coreapp.media.due_downloads import WaitingDownloads
from tests.manual_clock import ManualClock
from tidings.storage.business.media_downloads import Download


def download(number: int) -> Download:
    return Download(f"d{number}", 0, "1", "2", "", b"", 0, 0)


class TableAndMemory(RuleBasedStateMachine):
    """The table holds what is committed. A page may be read at one time and arrive at another."""

    def __init__(self) -> None:
        super().__init__()
        self.clock = ManualClock()
        self.waiting = WaitingDownloads(4, self.clock)
        self.table: dict[str, Download] = {}
        self.finished: set[str] = set()
        self.taken: dict[str, Download] = {}
        self.made = 0
        self.page: tuple[list[Download], int] | None = None

    @initialize(left=st.integers(0, 10))
    def an_earlier_owner_left_some(self, left: int) -> None:
        for _ in range(left):
            self.made += 1
            self.table[f"d{self.made}"] = download(self.made)

    @rule(count=st.integers(1, 6))
    def some_come(self, count: int) -> None:
        new = [download(self.made + n + 1) for n in range(count)]
        self.made += count
        self.table |= {entry.id: entry for entry in new}
        self.waiting.offer(new)

    @precondition(lambda self: self.page is None and self.waiting.wants_more)
    @rule()
    def a_page_is_read(self) -> None:
        requested = self.waiting.loading()
        rows = sorted(self.table.values(), key=lambda entry: (entry.due_at, entry.id))[:requested]
        self.page = ([download(int(row.id[1:])) for row in rows], requested)

    @precondition(lambda self: self.page is not None)
    @rule()
    def the_page_arrives(self) -> None:
        assert self.page is not None
        self.waiting.loaded(*self.page)
        self.page = None

    @rule()
    def one_is_taken(self) -> None:
        found = self.waiting.take()
        if found is not None:
            assert found.id not in self.taken
            assert found.id not in self.finished
            self.taken[found.id] = found

    @precondition(lambda self: bool(self.taken))
    @rule(ends=st.booleans())
    def one_ends(self, ends: bool) -> None:
        message_id, found = self.taken.popitem()
        if ends:
            del self.table[message_id]
            self.finished.add(message_id)
            self.waiting.done(message_id)
        else:
            found.due_at = int((self.clock.now() + 1) * 1000)
            self.waiting.again(found)

    @rule()
    def time_passes(self) -> None:
        self.clock.advance(2)

    @invariant()
    def memory_is_bounded(self) -> None:
        assert len(self.waiting) <= 4

    def teardown(self) -> None:
        """Check that every download is handed out in the end."""
        if self.page is not None:
            self.the_page_arrives()
        for _ in range(3 * self.made + 10):
            self.time_passes()
            if self.waiting.wants_more:
                self.a_page_is_read()
                self.the_page_arrives()
            self.one_is_taken()
            if self.taken:
                self.one_ends(True)
        assert not self.table


TestTableAndMemory = TableAndMemory.TestCase
TestTableAndMemory.settings = settings(max_examples=200, stateful_step_count=30)


class SetBack(ManualClock):
    """Clock whose wall clock can be set back."""

    def set_back(self, seconds: float) -> None:
        self._now -= seconds


def test_a_clock_that_is_set_back_delays_no_attempt() -> None:
    clock = SetBack()
    waiting = WaitingDownloads(10, clock)
    requested = waiting.loading()
    waiting.loaded([], requested)
    later = Download("d", 0, "1", "2", "", b"", 0, clock.now_ms(), due_at=clock.now_ms() + 2_000)
    waiting.offer([later])
    assert waiting.take() is None
    clock.set_back(3600)
    clock.advance(2.1)
    assert waiting.take() is later


def test_a_due_time_of_a_clock_that_was_ahead_is_at_most_five_minutes_away() -> None:
    clock = ManualClock()
    waiting = WaitingDownloads(10, clock)
    requested = waiting.loading()
    later = Download("d", 0, "1", "2", "", b"", 0, clock.now_ms(), due_at=clock.now_ms() + 3_600_000)
    waiting.loaded([later], requested)
    clock.advance(299)
    assert waiting.take() is None
    clock.advance(2)
    assert waiting.take() is later
