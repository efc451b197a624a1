"""Envelopes given to another node to deliver, until it responds, and the streams that they belong to."""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

import msgspec

from network.routing.delivery_queue import EnvelopeOrigin
from network.routing.undecided import REPEATED, memory_quota
from network.settings import Limits
from tidings.aio.clock import Clock
from tidings.aio.quota import QuotaUsage
from tidings.storage.network import mailbox
from tidings.wire import device

# Seconds after a login until every envelope that other nodes had stored of this sender, or for this recipient, has been
# found: twice the longest time until the recipient's node polls for it.
SECONDS = 10.0


class Stream(NamedTuple):
    """Sequence of envelopes that must be delivered in the order in which they were sent."""

    sender: str
    to: str
    hash_slot: int  # of an envelope with a group; -1 for others


def stream_of(frame: device.Send) -> Stream:
    """Return the stream that an envelope belongs to."""
    return Stream(
        frame.sender, frame.to, device.hash_slot_of(frame.sender, frame.kind, frame.group) if frame.group else -1
    )


@dataclasses.dataclass(slots=True)
class PendingForward:
    """Envelope that is being forwarded to another node, or whose recipient is being located."""

    frame: device.Send  # Carries the number under which its sender waits for the response.
    origin: EnvelopeOrigin  # Receives the response.
    rank: int  # Higher than that of every envelope received earlier.
    node: str = ""  # Node that has the envelope; empty before it was given to one.
    due: float = 0.0  # Monotonic seconds at which it is stored here without a response.
    tries: int = 0  # Nodes that it was given to so far.

    @property
    def n(self) -> int:
        """Return the sender's number of the envelope."""
        return self.frame.n


class Forwards:
    """Forwarded envelopes by this node's number, in the order in which they are due.

    They are bounded like the envelopes that are undecided here.
    """

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._numbers = itertools.count(1)
        self._waiting: dict[int, PendingForward] = {}
        self._by_id: dict[tuple[str, str], PendingForward] = {}
        self._streams: dict[Stream, dict[int, PendingForward]] = {}
        self._bytes: QuotaUsage[str] = QuotaUsage()
        self._quota = memory_quota(limits.undecided_bytes)

    def __len__(self) -> int:
        return len(self._waiting)

    def has_room(self, frame: device.Send) -> bool:
        """Return whether one more envelope may be added."""
        is_full = len(self._waiting) >= self._limits.undecided
        return not is_full and self._bytes.has_room(self._quota, frame.sender, _size_of(frame))

    def redirect_repeat(self, origin: EnvelopeOrigin, frame: device.Send) -> bool:
        """Direct the response to an envelope that is being forwarded already to its latest origin.

        Returns whether the envelope is one.
        """
        earlier = self._by_id.get((frame.sender, frame.id))
        if earlier is None:
            return False
        earlier.origin.superseded(earlier.n)
        # The outgoing frame shares this object, so it must not be changed.
        earlier.origin, earlier.frame = origin, msgspec.structs.replace(earlier.frame, n=frame.n)
        REPEATED.inc()
        return True

    def add(self, forward: PendingForward) -> int:
        """Add an envelope; return the number that the response will name."""
        number = next(self._numbers)
        self._waiting[number] = forward
        self._by_id[forward.frame.sender, forward.frame.id] = forward
        self._streams.setdefault(stream_of(forward.frame), {})[number] = forward
        self._bytes.add(forward.frame.sender, _size_of(forward.frame))
        return number

    def is_waiting(self, number: int, node: str) -> bool:
        """Return whether a response of this node to this number is outstanding."""
        forward = self._waiting.get(number)
        return forward is not None and forward.node == node

    def take(self, number: int, node: str) -> PendingForward | None:
        """Remove an envelope that this node has responded to or will not receive; `None` when none is waiting."""
        return self._pop(number) if self.is_waiting(number, node) else None

    def _pop(self, number: int) -> PendingForward:
        forward = self._waiting.pop(number)
        del self._by_id[forward.frame.sender, forward.frame.id]
        stream = stream_of(forward.frame)
        del self._streams[stream][number]
        if not self._streams[stream]:
            del self._streams[stream]
        self._bytes.remove(forward.frame.sender, _size_of(forward.frame))
        return forward

    def take_late(self, now: float) -> Iterator[PendingForward]:
        """Remove the envelopes for which no response arrived in time.

        now: monotonic seconds.
        """
        while self._waiting:
            number, forward = next(iter(self._waiting.items()))
            if forward.due > now:
                return
            yield from self._take_all([number])

    def take_older(self, frame: device.Send, rank: float = math.inf, *, not_at: str = "") -> Sequence[PendingForward]:
        """Remove the older envelopes of this one's stream, in order.

        rank: rank of this envelope; infinite for one that was just received.
        not_at: node with which older envelopes may stay; empty for none.
        """
        found = self._streams.get(stream_of(frame)) if self._streams else None
        if not found:
            return ()
        numbers = [number for number, each in found.items() if each.rank < rank and each.node != not_at]
        return sorted(self._take_all(numbers), key=lambda forward: forward.rank)

    def take_younger(self, forward: PendingForward) -> Sequence[PendingForward]:
        """Remove the younger envelopes of this one's stream, in order."""
        found = self._streams.get(stream_of(forward.frame), {})
        numbers = [number for number, each in found.items() if each.rank > forward.rank]
        return sorted(self._take_all(numbers), key=lambda each: each.rank)

    def take_of(self, nodes: frozenset[str]) -> Iterator[PendingForward]:
        """Remove the envelopes that these nodes have."""
        yield from self._take_all([number for number, forward in self._waiting.items() if forward.node in nodes])

    def take_all(self) -> Iterator[PendingForward]:
        """Remove all envelopes."""
        yield from self._take_all(list(self._waiting))

    def _take_all(self, numbers: Iterable[int]) -> Iterator[PendingForward]:
        for number in numbers:
            if number in self._waiting:
                yield self._pop(number)


class RecentLogins:
    """Streams of recently attached devices whose first envelope has not been sent to the recipient's node.

    Another node may have stored an envelope of the stream, confirmed it to the sender, and died or lost its link before
    announcing it to the recipient's node. So the first envelope of each stream makes the recipient's node read the
    mailbox first.
    """

    def __init__(self, clock: Clock, device_of: Callable[[Stream], str]) -> None:
        """device_of: returns the number of the stream whose logins count, the sender's or the recipient's"""
        self._clock, self._device_of = clock, device_of
        # By device, in the order of expiry: its time in monotonic seconds, and the streams whose first envelope was
        # sent.
        self._devices: dict[str, tuple[float, set[Stream]]] = {}

    def note(self, number: str) -> None:
        """Record that a device, or a partition of it, attached to this node."""
        self._devices.pop(number, None)
        self._devices[number] = self._clock.monotonic() + SECONDS, set()

    def has(self, number: str) -> bool:
        """Return whether this device attached to this node within the last 10 s."""
        return number in self._devices

    def take_first(self, stream: Stream) -> bool:
        """Return whether the next envelope of this stream is the first since its device attached; True only once."""
        found = self._devices.get(self._device_of(stream))
        if found is None or stream in found[1]:
            return False
        found[1].add(stream)
        return True

    def put_back(self, stream: Stream) -> None:
        """Record that the first envelope of this stream did not reach the recipient's node."""
        found = self._devices.get(self._device_of(stream))
        if found is not None:
            found[1].discard(stream)

    def sweep(self) -> None:
        """Remove devices whose time has passed."""
        now = self._clock.monotonic()
        while self._devices:
            number, (until, _) = next(iter(self._devices.items()))
            if until > now:
                break
            del self._devices[number]


def _size_of(frame: device.Send) -> int:
    return mailbox.size_of(frame.body, frame.refs)
