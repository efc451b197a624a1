"""Robots join the groups that they are invited to by a text with a link."""

from __future__ import annotations

import asyncio
import logging
import re

from handset import errors
from handset.application import ReceivedMessage
from handset.groups import FleetGroups
from tidings.aio.service import run_workers, wait_for
from tidings.client.errors import ClientError, NetworkAway

log = logging.getLogger(__name__)

QUEUE_LIMIT = 10_000  # invitations; further ones are ignored
ATTEMPTS = 10
RETRY_SECONDS = 1.0

_LINK = re.compile(r"https?://[^\s/]+/(?:[^\s/]+/)*([A-Za-z0-9_-]{22})(?=\s|$)")


def find(text: str) -> str | None:
    """Return the code of the first link to a group; `None` without one."""
    found = _LINK.search(text)
    return found[1] if found else None


class Invitations:
    """Service that joins groups. Invitations that wait when it stops are not followed. Joining twice has no effect."""

    name = "invitations"

    def __init__(self, groups: FleetGroups) -> None:
        self._groups = groups
        self._waiting: asyncio.Queue[tuple[str, str]] = asyncio.Queue(QUEUE_LIMIT)

    def offer(self, message: ReceivedMessage) -> None:
        """Queue the invitation in a message, if it has one. Invitations in group messages are ignored."""
        code = find(message.text) if message.text and not message.group else None
        if code is not None and not self._waiting.full():
            self._waiting.put_nowait((message.number, code))

    async def run(self, stop: asyncio.Event) -> None:
        await run_workers(stop, self._work(stop))

    async def _work(self, stop: asyncio.Event) -> None:
        while True:
            number, code = await self._waiting.get()
            for _ in range(ATTEMPTS):
                try:
                    group = await self._groups.join(number, code)
                except (NetworkAway, errors.NotStored):
                    await wait_for(stop, RETRY_SECONDS)
                except ClientError as error:
                    log.warning("group.not_joined", extra={"number": number, "error": str(error)})
                    break
                else:
                    log.info("group.joined", extra={"number": number, "group": group.id})
                    break
