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
READ_PAGE, READ_PAUSE = 200, 0.05
# Seconds between two polls, numbers in one query of a poll, and maximum seconds over which its queries are spread.
# Envelopes that another node has stored and could not announce are found within the sum of the first and the last.
INTERVAL, BATCH, SPREAD_SECONDS = 3.0, 1000, 1.0
# Filled mailboxes of all devices that one query lists, instead of a query for each part of the devices attached here.
MAX_FILLED = 5000
# Seconds before the next such query when they were more, or when it took longer than `MAX_LISTING_SECONDS`.
LISTING_PAUSE, MAX_LISTING_SECONDS = 60.0, 1.0


class FilledMailboxes(Protocol):
    """Mailboxes that hold envelopes."""

    async def list_filled(self, recipients: Sequence[str]) -> set[str]:
        """Return those of the numbers whose mailboxes hold envelopes."""

    async def list_first_filled(self, limit: int) -> set[str]:
        """Return the numbers whose mailboxes hold envelopes, at most `limit` of them."""


@dataclasses.dataclass(slots=True, eq=False)
class MailboxPolls:
    """Service that finds envelopes that other nodes stored and could not announce.

    The announcement is missing when a link is cut, or when Redis or the other node has died.
    """

    name = "mailbox polls"

    router: SharedRouter
    mailboxes: FilledMailboxes
    _next_listing_at: float = 0.0  # event-loop time from which one query may list all filled mailboxes

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
        all_pages = list(pages(list(dict.fromkeys(self.router.attached())), BATCH))
        filled = await self._list_all_filled() if len(all_pages) > 1 else None
        for page in all_pages:
            # A mailbox that is being read may be past envelopes that other nodes stored since the read started.
            draining = list(filter(self.router.is_draining, page))
            idle = set(page).difference(draining)
            if filled is not None:
                found = idle & filled
            else:
                found = await self.mailboxes.list_filled(list(idle)) if idle else set()
            for number in (*draining, *found):
                self.router.read_mailbox(number)
            await asyncio.sleep(SPREAD_SECONDS / len(all_pages) if filled is None else 0.0)

    async def _list_all_filled(self) -> set[str] | None:
        """Return all numbers whose mailboxes hold envelopes; `None` when they are over `MAX_FILLED`, or were lately."""
        now = asyncio.get_running_loop().time
        started = now()
        if started < self._next_listing_at:
            return None
        found = await self.mailboxes.list_first_filled(MAX_FILLED + 1)
        if len(found) > MAX_FILLED or now() > started + MAX_LISTING_SECONDS:
            self._next_listing_at = now() + LISTING_PAUSE
        return found if len(found) <= MAX_FILLED else None

    async def read_all(self) -> None:
        """Read the mailboxes of all attached devices."""
        for page in pages(list(self.router.attached()), READ_PAGE):
            for number in page:
                self.router.read_mailbox(number)
            await asyncio.sleep(READ_PAUSE)
