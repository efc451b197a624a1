"""Robots: handsets whose number determines their behaviour."""

from __future__ import annotations

import asyncio
import dataclasses
import logging
import re
from collections.abc import Callable, Sequence

from handset import errors
from handset.application import TYPING, Action, DeviceEvent, ReceivedMessage
from handset.groups import FleetGroups
from handset.robots import behaviours
from handset.robots.behaviours import Behaviour
from handset.shown_log import ShownLog
from handset.typing_peers import TypingPeers
from tidings.aio.clock import SystemClock
from tidings.aio.service import run_workers, wait_for
from tidings.client.errors import ClientError, NetworkUnavailable

QUEUE_LIMIT = 10_000  # invitations; further ones are ignored
ATTEMPTS = 10
RETRY_SECONDS = 1.0

_LINK = re.compile(r"https?://[^\s/]+/(?:[^\s/]+/)*([A-Za-z0-9_-]{22})(?=\s|$)")


def find_invite_code(text: str) -> str | None:
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
        code = find_invite_code(message.text) if message.text and not message.group else None
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
                except (NetworkUnavailable, errors.NotStored):
                    await wait_for(stop, RETRY_SECONDS)
                except ClientError as error:
                    log.warning("group.not_joined", extra={"number": number, "error": str(error)})
                    break
                else:
                    log.info("group.joined", extra={"number": number, "group": group.id})
                    break


log = logging.getLogger(__name__)

FLEET = "robots"


def numbers(kinds: Sequence[Behaviour], per_kind: int, prefixes: Sequence[str] = behaviours.PREFIXES) -> list[str]:
    """Return the numbers to register. Those of the unknown kind are left out."""
    registered = [kind for kind in kinds if kind.is_registered]
    return [
        behaviours.number_of(kind, index, prefix)
        for prefix in prefixes
        for kind in registered
        for index in range(per_kind)
    ]


@dataclasses.dataclass(eq=False, repr=False, slots=True)
class Robots:
    """Application of a fleet of robots."""

    shown_log: ShownLog
    _: dataclasses.KW_ONLY
    prefixes: Sequence[str] = behaviours.PREFIXES  # prefixes of the robots' numbers
    # Peers that the robots show as typing.
    typing: TypingPeers = dataclasses.field(default_factory=lambda: TypingPeers(SystemClock()))
    _listeners: list[Callable[[ReceivedMessage], None]] = dataclasses.field(default_factory=list, init=False)
    _behaviours: dict[str, Behaviour | None] = dataclasses.field(default_factory=dict, init=False)

    def subscribe(self, listener: Callable[[ReceivedMessage], None]) -> None:
        """Add a listener that is called for each shown message."""
        self._listeners.append(listener)

    def actions(self, message: ReceivedMessage) -> Sequence[Action]:
        number = message.number
        if number not in self._behaviours:
            self._behaviours[number] = behaviours.behaviour_of(number, self.prefixes)
        return behaviours.actions(self._behaviours[number], message)

    def show(self, messages: Sequence[ReceivedMessage]) -> None:
        self.shown_log.append(messages)
        for message in messages:
            if not message.group:
                self.typing.end(message.number, message.peer)
            for listener in self._listeners:
                listener(message)

    def list_shown(self, messages: Sequence[ReceivedMessage]) -> set[tuple[str, str]]:
        return self.shown_log.list_shown(messages)

    def close(self) -> None:
        self.shown_log.close()

    def notify(self, event: DeviceEvent) -> None:
        if event.kind == TYPING:
            self.typing.begin(event.number, event.peer)
        log.debug("robot.notice", extra={"number": event.number, "from": event.peer, "notice": event.kind})
