"""Senders that attached to this node recently: their envelopes may be stored elsewhere without an announcement."""

from __future__ import annotations

from network.cluster.forwards import Stream
from tidings.aio.clock import Clock

# Seconds after a sender's login until every envelope that it had stored through other nodes has been found: twice the
# longest time until the recipient's node polls for it.
SECONDS = 10.0


class RecentSenders:
    """Streams of recently attached senders whose first envelope has not been sent to the recipient's node.

    The sender's previous node may have stored an envelope, confirmed it to the sender, and died before announcing it to
    the recipient's node. So the first envelope of each stream makes the recipient's node read the mailbox first.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        # By sender, in the order of expiry: its time in monotonic seconds, and the streams whose first envelope was
        # sent.
        self._senders: dict[str, tuple[float, set[Stream]]] = {}

    def note(self, sender: str) -> None:
        """Record that a device, or a partition of it, attached to this node."""
        self._senders.pop(sender, None)
        self._senders[sender] = self._clock.monotonic() + SECONDS, set()

    def has(self, sender: str) -> bool:
        """Return whether this sender attached to this node within the last 10 s."""
        return sender in self._senders

    def take_first(self, stream: Stream) -> bool:
        """Return whether the next envelope of this stream is the first since its sender attached; True only once."""
        found = self._senders.get(stream.sender)
        if found is None or stream in found[1]:
            return False
        found[1].add(stream)
        return True

    def put_back(self, stream: Stream) -> None:
        """Record that the first envelope of this stream did not reach the recipient's node."""
        found = self._senders.get(stream.sender)
        if found is not None:
            found[1].discard(stream)

    def sweep(self) -> None:
        """Remove senders whose time has passed."""
        now = self._clock.monotonic()
        while self._senders:
            sender, (until, _) = next(iter(self._senders.items()))
            if until > now:
                break
            del self._senders[sender]
