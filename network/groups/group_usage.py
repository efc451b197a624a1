"""Usage of one group by one sender: rate limit and size of its copies."""

from __future__ import annotations

from network.routing.quotas import SenderUsage
from tidings.storage.network import mailbox
from tidings.wire import device

# Copies of a message to a group of unknown size: those of the largest group.
LARGEST = 256


class GroupUsage(SenderUsage):
    """Rate limit of a sender in a group, with the number of copies of its last message and the group's epoch at that
    time.
    """

    __slots__ = ("_copies", "_epoch")

    def __init__(self) -> None:
        super().__init__()
        self._copies, self._epoch = LARGEST, -1

    def size_of(self, frame: device.Send) -> int:
        """Return the bytes of all copies of a message."""
        copies = self._copies if frame.epoch == self._epoch else LARGEST
        return copies * mailbox.size_of(frame.body, frame.refs)

    def learn(self, frame: device.Send, copies: int) -> None:
        """Record the number of copies of a message of this epoch."""
        self._copies, self._epoch = copies, frame.epoch
