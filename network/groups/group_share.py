"""A sender's share of what waits to be copied in one group."""

from __future__ import annotations

from network.routing.quotas import Share
from tidings.storage.network import mailbox
from tidings.wire import device

# Copies of a message to a group whose size is not known yet: of the largest.
LARGEST = 256


class GroupShare(Share):
    """A sender's pace in a group, and how many copies its last message there was, under which epoch of the group."""

    __slots__ = ("_copies", "_epoch")

    def __init__(self) -> None:
        super().__init__()
        self._copies, self._epoch = LARGEST, -1

    def size_of(self, frame: device.Send) -> int:
        """Bytes of all copies of a message."""
        copies = self._copies if frame.epoch == self._epoch else LARGEST
        return copies * mailbox.size_of(frame.body, frame.refs)

    def learn(self, frame: device.Send, copies: int) -> None:
        """A message of this epoch has so many."""
        self._copies, self._epoch = copies, frame.epoch
