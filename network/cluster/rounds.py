"""Rounds through the mailboxes of all devices that are attached here, some at a time."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Protocol

from tidings.storage.database import pages

# Mailboxes that are looked into together, and seconds before the next.
TOGETHER, PAUSE = 200, 0.05


class Mailboxes(Protocol):
    """Those of attached devices."""

    def attached(self) -> Iterator[str]: ...

    def look_again(self, number: str) -> None: ...


class Rounds:
    """Looks for what others have stored, and could not say."""

    def __init__(self, mailboxes: Mailboxes) -> None:
        self._mailboxes = mailboxes
        # Whose are looked into in this round.
        self._beat: list[str] = []

    async def make(self) -> None:
        """A whole one."""
        for page in pages(list(self._mailboxes.attached()), TOGETHER):
            for number in page:
                self._mailboxes.look_again(number)
            await asyncio.sleep(PAUSE)

    def go_on(self, tick: int, ticks: int) -> None:
        """One part of one: a whole one in so many ticks."""
        if tick == 0:
            self._beat = list(self._mailboxes.attached())
        size = -(-len(self._beat) // ticks)
        for number in self._beat[tick * size : (tick + 1) * size]:
            self._mailboxes.look_again(number)
