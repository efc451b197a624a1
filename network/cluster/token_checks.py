"""Checks of the tokens of all devices attached to this node, after changes that other nodes could not announce."""

from __future__ import annotations

import asyncio
import dataclasses
import logging

from network.directory.directory import Directory
from network.routing.shared_router import SharedRouter
from tidings.aio.service import Wakeup, run_workers
from tidings.storage import outages
from tidings.storage.database import pages
from tidings.wire import device

log = logging.getLogger(__name__)

# Numbers in one query, and seconds until the next one.
BATCH, PAUSE = 1000, 0.05
# Seconds between two checks: a node that is cut off from another one requests a check each second.
INTERVAL = 5.0


@dataclasses.dataclass(slots=True, eq=False)
class TokenChecks:
    """Service that disconnects devices whose tokens are void.

    A node announces each registration. The announcement is missing when a link is cut, or when the node has died after
    the commit.
    """

    name = "token checks"

    router: SharedRouter
    directory: Directory
    _due: Wakeup = dataclasses.field(default_factory=Wakeup)

    def request(self) -> None:
        """Check all tokens soon; logins in progress read theirs again."""
        self.directory.logins.changed()
        self._due.wake()

    async def run(self, stop: asyncio.Event) -> None:
        # At the stop, a check that waits for a database that is unreachable is cancelled.
        await run_workers(stop, self._check())

    async def _check(self) -> None:
        while True:
            await self._due.wait()
            try:
                await self.run_once()
            except Exception as error:
                self._due.wake()
                if outages.is_outage(error):
                    log.warning("tokens.not_checked", extra={"error": outages.brief(error)})
                else:
                    log.exception("tokens.not_checked")
            await asyncio.sleep(INTERVAL)

    async def run_once(self) -> None:
        """Check the tokens of all attached devices once."""
        for page in pages(list(dict.fromkeys(self.router.attached())), BATCH):
            # Read before the query, so that a device with a newer token is not disconnected.
            attached = {number: self.router.tokens_of(number) for number in page}
            registered = await self.directory.logins.list_token_hashes(page)
            for number, tokens in attached.items():
                void = tokens - {registered.get(number, b"")}
                if void:
                    self.router.expel_tokens(number, void, device.REPLACED)
            await asyncio.sleep(PAUSE)
