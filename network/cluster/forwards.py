"""Envelopes that another node has been given to deliver, until it answers."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterable, Iterator, Sequence

import msgspec

from network.routing.byte_shares import ByteShares
from network.routing.delivery_queue import Origin
from network.routing.undecided import REPEATED
from network.settings import Limits
from tidings.storage.network import mailbox
from tidings.wire import device


@dataclasses.dataclass(slots=True)
class Forward:
    """One of them.

    frame:  with the number under which its sender waits for the answer.
    origin: who waits for it.
    node:   that has it.
    due:    monotonic seconds at which it is stored here if nothing was heard.
    tries:  nodes that have had it.
    """

    frame: device.Send
    origin: Origin
    node: str
    due: float
    tries: int

    @property
    def n(self) -> int:
        """Its sender's number."""
        return self.frame.n


class Forwards:
    """Forwarded envelopes by a number of ours, in the order in which they come due; bounded like those that are
    undecided here."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._numbers = itertools.count(1)
        self._waiting: dict[int, Forward] = {}
        self._by_id: dict[tuple[str, str], Forward] = {}
        self._bytes = ByteShares(limits.undecided_bytes)

    def __len__(self) -> int:
        return len(self._waiting)

    def has_room(self, frame: device.Send) -> bool:
        """For one more?"""
        return len(self._waiting) < self._limits.undecided and self._bytes.has_room(frame.sender, _size_of(frame))

    def is_repeat(self, origin: Origin, frame: device.Send) -> bool:
        """Is it on its way already? Then whoever sent it last hears the answer."""
        earlier = self._by_id.get((frame.sender, frame.id))
        if earlier is None:
            return False
        earlier.origin.superseded(earlier.n)
        # On its way out is the same object: it stays as it is.
        earlier.origin, earlier.frame = origin, msgspec.structs.replace(earlier.frame, n=frame.n)
        REPEATED.inc()
        return True

    def add(self, forward: Forward) -> int:
        """The number that the answer will name."""
        number = next(self._numbers)
        self._waiting[number] = forward
        self._by_id[forward.frame.sender, forward.frame.id] = forward
        self._bytes.add(forward.frame.sender, _size_of(forward.frame))
        return number

    def is_waiting(self, number: int, node: str) -> bool:
        """Is an answer of this node waited for?"""
        forward = self._waiting.get(number)
        return forward is not None and forward.node == node

    def take(self, number: int, node: str) -> Forward | None:
        """One that this node has answered, or will not get; `None` when it is not waited for."""
        return self._pop(number) if self.is_waiting(number, node) else None

    def _pop(self, number: int) -> Forward:
        forward = self._waiting.pop(number)
        del self._by_id[forward.frame.sender, forward.frame.id]
        self._bytes.remove(forward.frame.sender, _size_of(forward.frame))
        return forward

    def take_late(self, now: float) -> Iterator[Forward]:
        """Those that were not answered in time."""
        while self._waiting:
            number, forward = next(iter(self._waiting.items()))
            if forward.due > now:
                return
            yield from self._take_all([number])

    def take_behind(self, late: Sequence[Forward]) -> Iterator[Forward]:
        """Those that the same nodes have from the same senders to the same recipients."""
        if late:
            pairs = {_pair_of(forward) for forward in late}
            yield from self._take_all(
                [number for number, forward in self._waiting.items() if _pair_of(forward) in pairs]
            )

    def take_of(self, nodes: frozenset[str]) -> Iterator[Forward]:
        """Those that these nodes have."""
        yield from self._take_all([number for number, forward in self._waiting.items() if forward.node in nodes])

    def take_all(self) -> Iterator[Forward]:
        """All of them."""
        yield from self._take_all(list(self._waiting))

    def _take_all(self, numbers: Iterable[int]) -> Iterator[Forward]:
        for number in numbers:
            if number in self._waiting:
                yield self._pop(number)


def _size_of(frame: device.Send) -> int:
    return mailbox.size_of(frame.body, frame.refs)


def _pair_of(forward: Forward) -> tuple[str, str, str]:
    return forward.node, forward.frame.sender, forward.frame.to
