"""Envelopes that another node has been given to deliver, until it answers."""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import msgspec

from network.routing.byte_shares import ByteShares
from network.routing.delivery_queue import Origin
from network.routing.undecided import REPEATED
from network.settings import Limits
from tidings.storage.network import mailbox
from tidings.wire import device


class Stream(NamedTuple):
    """Envelopes that have to be shown in the order in which they were sent.

    slot: of the recipient for those of groups, which go to a part of their own; -1 for others.
    """

    sender: str
    to: str
    slot: int


def stream_of(frame: device.Send) -> Stream:
    """Return the stream that an envelope belongs to."""
    return Stream(frame.sender, frame.to, device.slot_of(frame.sender, frame.kind, frame.group) if frame.group else -1)


@dataclasses.dataclass(slots=True)
class Forward:
    """An envelope on its way to another node, or to whoever is found to have its recipient.

    frame:  with the number under which its sender waits for the answer.
    origin: who waits for it.
    rank:   higher than that of every envelope that came before it.
    node:   that has it; empty before it was given to one.
    due:    monotonic seconds at which it is stored here if no answer has come.
    tries:  nodes that have had it.
    """

    frame: device.Send
    origin: Origin
    rank: int
    node: str = ""
    due: float = 0.0
    tries: int = 0

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
        self._streams: dict[Stream, dict[int, Forward]] = {}
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
        self._streams.setdefault(stream_of(forward.frame), {})[number] = forward
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
        stream = stream_of(forward.frame)
        del self._streams[stream][number]
        if not self._streams[stream]:
            del self._streams[stream]
        self._bytes.remove(forward.frame.sender, _size_of(forward.frame))
        return forward

    def take_late(self, now: float) -> Iterator[Forward]:
        """Those that were not answered in time."""
        while self._waiting:
            number, forward = next(iter(self._waiting.items()))
            if forward.due > now:
                return
            yield from self._take_all([number])

    def take_older(self, frame: device.Send, rank: float = math.inf, *, not_at: str = "") -> Sequence[Forward]:
        """Take the older envelopes of the stream of this one, in their order.

        rank: of this one; infinite for one that has just come. not_at: a node with which they may stay.
        """
        found = self._streams.get(stream_of(frame)) if self._streams else None
        if not found:
            return ()
        numbers = [number for number, each in found.items() if each.rank < rank and each.node != not_at]
        return sorted(self._take_all(numbers), key=lambda forward: forward.rank)

    def take_younger(self, forward: Forward) -> Sequence[Forward]:
        """Take the younger envelopes of the stream of this one, in their order."""
        found = self._streams.get(stream_of(forward.frame), {})
        numbers = [number for number, each in found.items() if each.rank > forward.rank]
        return sorted(self._take_all(numbers), key=lambda each: each.rank)

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
