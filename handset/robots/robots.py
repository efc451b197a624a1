"""Robots: handsets whose number determines their behaviour."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Callable, Sequence

from handset.application import Action, DeviceEvent, ReceivedMessage
from handset.robots import behaviours
from handset.robots.behaviours import Behaviour
from handset.shown_log import ShownLog

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
    prefixes: Sequence[str] = behaviours.PREFIXES  # of the robots' numbers
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
            for listener in self._listeners:
                listener(message)

    def list_shown(self, messages: Sequence[ReceivedMessage]) -> set[tuple[str, str]]:
        return self.shown_log.list_shown(messages)

    def close(self) -> None:
        self.shown_log.close()

    def notify(self, event: DeviceEvent) -> None:
        log.debug("robot.notice", extra={"number": event.number, "from": event.peer, "notice": event.kind})
