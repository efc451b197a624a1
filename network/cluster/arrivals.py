"""Senders that attached to this node a moment ago: what they sent through another node may be stored unannounced."""

from __future__ import annotations

from network.cluster.forwards import Stream
from tidings.runtime.clock import Clock

# Seconds from the login of a sender to the moment from which every envelope that it had stored elsewhere before it has
# been found: twice the longest time until the node of the recipient polls for it.
SECONDS = 10.0


class Arrivals:
    """Streams of such senders that have yet to be announced to the nodes of their recipients.

    The node that had a sender before may have stored an envelope, told the sender so and died before it announced it.
    So the first envelope of each stream makes the node of the recipient read the mailbox first.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        # By sender, in the order of `until`: monotonic seconds, and the streams that have had their first envelope.
        self._senders: dict[str, tuple[float, set[Stream]]] = {}

    def note(self, sender: str) -> None:
        """Note that a device, or a part of it, attached here."""
        self._senders.pop(sender, None)
        self._senders[sender] = self._clock.monotonic() + SECONDS, set()

    def has(self, sender: str) -> bool:
        """Whether this sender attached here a moment ago."""
        return sender in self._senders

    def take_first(self, stream: Stream) -> bool:
        """Whether the next envelope of this stream is the first since its sender attached; once."""
        found = self._senders.get(stream.sender)
        if found is None or stream in found[1]:
            return False
        found[1].add(stream)
        return True

    def put_back(self, stream: Stream) -> None:
        """Note that the first envelope of this stream did not reach the node of the recipient."""
        found = self._senders.get(stream.sender)
        if found is not None:
            found[1].discard(stream)

    def sweep(self) -> None:
        """Forget senders whose time is over."""
        now = self._clock.monotonic()
        while self._senders:
            sender, (until, _) = next(iter(self._senders.items()))
            if until > now:
                break
            del self._senders[sender]
