"""Polls of the mailboxes of all devices attached to this node."""

from __future__ import annotations

import asyncio
import dataclasses
import logging
from collections.abc import Sequence
from typing import Protocol

from network.routing.shared_router import SharedRouter
from tidings.aio.service import run_workers
from tidings.storage.database import pages

log = logging.getLogger(__name__)

# Mailboxes that are read together, and seconds until the next ones.
TOGETHER, PAUSE = 200, 0.05
# Seconds between two polls, numbers in one query of a poll, and maximum seconds over which its queries are spread.
# Envelopes that another node has stored and could not announce are found within the sum of the first and the last.
INTERVAL, BATCH, SPREAD = 3.0, 1000, 1.0
# Filled mailboxes of all devices that are read at once, instead of a query for each part of the devices attached here.
MOST = 5000
# Seconds before the next such read when they were more, or when it took longer than `SLOW` seconds.
PAUSE_OF_ALL, SLOW = 60.0, 1.0


class FilledMailboxes(Protocol):
    """Mailboxes that hold envelopes."""

    async def list_filled(self, recipients: Sequence[str]) -> set[str]:
        """Return those of the numbers whose mailboxes hold envelopes."""

    async def list_first_filled(self, most: int) -> set[str]:
        """Return the numbers whose mailboxes hold envelopes, at most `most` of them."""


@dataclasses.dataclass(slots=True, eq=False)
class MailboxPolls:
    """Service that finds envelopes that other nodes stored and could not announce.

    The announcement is missing when a link is cut, or when Redis or the other node has died.
    """

    name = "mailbox polls"

    router: SharedRouter
    mailboxes: FilledMailboxes
    _all_at: float = 0.0  # time of the loop from which all filled mailboxes may be read at once

    async def run(self, stop: asyncio.Event) -> None:
        # At the stop, a poll that waits for a database that is unreachable is cancelled.
        await run_workers(stop, self._poll())

    async def _poll(self) -> None:
        while True:
            await asyncio.sleep(INTERVAL)
            try:
                await self.run_once()
            except Exception:
                log.exception("mailboxes.poll_failed")

    async def run_once(self) -> None:
        """Poll the mailboxes of all attached devices once."""
        some = list(pages(list(dict.fromkeys(self.router.attached())), BATCH))
        filled = await self._list_all() if len(some) > 1 else None
        for page in some:
            # A mailbox that is being read may be past envelopes that other nodes stored since the read started.
            draining = list(filter(self.router.is_draining, page))
            idle = set(page).difference(draining)
            if filled is not None:
                found = idle & filled
            else:
                found = await self.mailboxes.list_filled(list(idle)) if idle else set()
            for number in (*draining, *found):
                self.router.read_mailbox(number)
            await asyncio.sleep(SPREAD / len(some) if filled is None else 0.0)

    async def _list_all(self) -> set[str] | None:
        """Return all numbers whose mailboxes hold envelopes; `None` when they are over `MOST`, or were lately."""
        now = asyncio.get_running_loop().time
        started = now()
        if started < self._all_at:
            return None
        found = await self.mailboxes.list_first_filled(MOST + 1)
        if len(found) > MOST or now() > started + SLOW:
            self._all_at = now() + PAUSE_OF_ALL
        return found if len(found) <= MOST else None

    async def make(self) -> None:
        """Read the mailboxes of all attached devices."""
        for page in pages(list(self.router.attached()), TOGETHER):
            for number in page:
                self.router.read_mailbox(number)
            await asyncio.sleep(PAUSE)
