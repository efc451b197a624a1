"""Terminal view, redrawn after every scrape and after every key press."""

from __future__ import annotations

import asyncio
import contextlib
import curses
import dataclasses
import os
import sys
import time
from collections.abc import Iterator, Sequence
from typing import Any

from cli.top import screen
from cli.top.snapshot import Snapshot, compare
from cli.top.sources import ScrapeResult, Sources

KEYS_SECONDS = 0.1  # between two polls of the keyboard


@dataclasses.dataclass(slots=True)
class ViewState:
    """State of the view, changed by key presses."""

    sort: str = screen.SORTS[0]
    paused: bool = False
    quits: bool = False
    due: bool = False  # scrape now, even if paused

    def press(self, key: str) -> None:
        """Apply a key press; keys without a meaning are ignored."""
        if key in ("q", "Q", "\x1b"):
            self.quits = True
        elif key in ("s", "S"):
            self.sort = screen.SORTS[(screen.SORTS.index(self.sort) + 1) % len(screen.SORTS)]
        elif key in ("p", "P"):
            self.paused = not self.paused
        elif key == " ":
            self.due = True


class LiveView:
    """Scrapes all processes periodically until `q`. A process that does not respond stays in the table."""

    def __init__(self, sources: Sources, *, interval: float, sort: str) -> None:
        """interval: seconds between two scrapes."""
        self._sources = sources
        self._interval = interval
        self._state = ViewState(sort)
        self._before: Sequence[ScrapeResult] = ()

    async def run(self) -> None:
        """Show the view until `q`. Needs a terminal."""
        loop = asyncio.get_running_loop()
        with _terminal() as window:
            snapshot = await self._scrape()
            next_scrape = loop.time() + min(1.0, self._interval)
            _draw(window, snapshot, self._state)
            while not self._state.quits:
                changed = self._read_keys(window)
                if (loop.time() >= next_scrape and not self._state.paused) or self._state.due:
                    self._state.due, changed = False, True
                    snapshot = await self._scrape()
                    next_scrape = loop.time() + self._interval
                if changed:
                    _draw(window, snapshot, self._state)
                await asyncio.sleep(KEYS_SECONDS)

    async def _scrape(self) -> Snapshot:
        after = await self._sources.read()
        snapshot = compare(self._before, after, time.time())
        self._before = after
        return snapshot

    def _read_keys(self, window: Any) -> bool:
        """Process pending key presses and changes of the terminal's size. Returns whether there were any."""
        found = False
        while (code := window.getch()) != curses.ERR:
            found = True
            if 0 <= code < 256:
                self._state.press(chr(code))
        return found


@contextlib.contextmanager
def _terminal() -> Iterator[Any]:
    os.environ.setdefault("TERM", "xterm")
    window = curses.initscr()
    try:
        curses.noecho()
        curses.cbreak()
        window.keypad(True)
        window.nodelay(True)
        with contextlib.suppress(curses.error):
            curses.curs_set(0)
        yield window
    finally:
        window.keypad(False)
        curses.nocbreak()
        curses.echo()
        curses.endwin()
        sys.stdout.flush()


def _draw(window: Any, snapshot: Snapshot, state: ViewState) -> None:
    height, width = window.getmaxyx()
    window.erase()
    shown = screen.lines(snapshot, sort=state.sort, width=width - 1, height=height, paused=state.paused)
    for number, line in enumerate(shown):
        # curses raises an error for the last cell of a window.
        with contextlib.suppress(curses.error):
            window.addstr(number, 0, line, curses.A_REVERSE if number == 0 else curses.A_NORMAL)
    window.refresh()
