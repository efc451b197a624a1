"""Admission of envelopes whose recipient is registered and does not block their sender, in order."""

from __future__ import annotations

import asyncio
import dataclasses
import functools
from collections.abc import Callable
from typing import TypeVar

from network.directory.recipients import Recipients
from network.routing.delivery_queue import EnvelopeOrigin
from network.routing.mailbox_usage import MailboxUsages
from network.routing.quotas import MailboxUsage
from network.routing.undecided import REFUSED
from tidings.aio.batcher import BatcherFull
from tidings.wire import device

Value = TypeVar("Value")


Admit = Callable[[EnvelopeOrigin, device.Send, MailboxUsage], None]


@dataclasses.dataclass(slots=True, eq=False)
class EnvelopeAdmission:
    """Admission by directory and mailbox usage. At most `limit` envelopes wait for these; more are `overloaded`.

    The directory's result and the usage of the recipient's mailbox are awaited together. A mailbox that is known to be
    empty is not counted.
    """

    directory: Recipients
    mailbox_usages: MailboxUsages
    admit: Admit
    # Returns whether memory shows that nothing waits in the mailbox of this number.
    is_empty: Callable[[str], bool]
    # Envelopes that may wait.
    limit: int
    _looking_up: dict[str, list[tuple[EnvelopeOrigin, device.Send]]] = dataclasses.field(default_factory=dict)
    _waiting: int = 0

    def take(self, origin: EnvelopeOrigin, frame: device.Send) -> None:
        """Admit or refuse one envelope, at once or when the directory has responded."""
        blocked, usage = self.directory.get(frame.to), self.mailbox_usages.get(frame.to)
        if usage is None and self.is_empty(frame.to):
            usage = self.mailbox_usages.learn(frame.to, ())
        if blocked is None or usage is None or frame.to in self._looking_up:
            self._queue_for_lookup(origin, frame)
        else:
            self._decide(origin, frame, blocked, usage)

    def _decide(
        self, origin: EnvelopeOrigin, frame: device.Send, blocked: frozenset[str] | None, usage: MailboxUsage
    ) -> None:
        if blocked is None:
            refuse(origin, frame, device.NO_SUCH_NUMBER)
        elif frame.sender in blocked:
            refuse(origin, frame, device.BLOCKED)
        else:
            self.admit(origin, frame, usage)

    def _queue_for_lookup(self, origin: EnvelopeOrigin, frame: device.Send) -> None:
        if self._waiting >= self.limit:
            refuse(origin, frame, device.OVERLOADED)
            return
        waiting = self._looking_up.get(frame.to)
        if waiting is None:
            try:
                found = self._look_up(frame.to)
            except BatcherFull:
                refuse(origin, frame, device.OVERLOADED)
                return
            waiting = self._looking_up[frame.to] = []
            found.add_done_callback(functools.partial(self._looked_up, frame.to))
        waiting.append((origin, frame))
        self._waiting += 1

    def _look_up(self, number: str) -> asyncio.Future[tuple[frozenset[str] | None, MailboxUsage]]:
        blocked, usage = self.directory.get(number), self.mailbox_usages.get(number)
        return asyncio.gather(
            self.directory.look_up(number) if blocked is None else _resolved(blocked),
            self.mailbox_usages.look_up(number) if usage is None else _resolved(usage),
        )

    def _looked_up(self, number: str, found: asyncio.Future[tuple[frozenset[str] | None, MailboxUsage]]) -> None:
        waiting = self._looking_up.pop(number)
        self._waiting -= len(waiting)
        failed = found.cancelled() or found.exception() is not None
        for origin, frame in waiting:
            if failed:
                refuse(origin, frame, device.OVERLOADED)
            elif number in self._looking_up:
                # One of them needs a newer count. The later ones wait behind it.
                self._queue_for_lookup(origin, frame)
            else:
                self._decide(origin, frame, *found.result())


def refuse(origin: EnvelopeOrigin, frame: device.Send, reason: str, detail: str = "", retry_after: int = 0) -> None:
    """Refuse an envelope and count the refusal.

    retry_after: seconds, for a temporary reason; 0 otherwise.
    """
    REFUSED.labels(reason).inc()
    origin.refused(frame.n, reason, detail, retry_after)


def _resolved(value: Value) -> asyncio.Future[Value]:
    future: asyncio.Future[Value] = asyncio.get_running_loop().create_future()
    future.set_result(value)
    return future
