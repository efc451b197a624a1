"""Deliveries about groups in another shard than the first: participants' keys, requests for ours, new devices.

They are forwarded to the first shard, which has the groups, in the transaction before their acknowledgement.
"""

from __future__ import annotations

from collections.abc import Sequence

from coreapp.context import ShardWakeups
from coreapp.groups import cross_shard, notices
from coreapp.groups.arrivals import Arrivals, GroupEvents
from coreapp.groups.cross_shard import CrossShardMessages
from coreapp.groups.receipts import ReceiptSteps
from tidings import e2ee
from tidings.storage.business.cross_shard_messages import CrossShardMessage
from tidings.storage.business.group_changes import GroupChanges
from tidings.storage.business.messages import Status
from tidings.wire.content import SenderKey, SenderKeyRequest
from tidings.wire.device import Deliver


class ForwardedEvents:
    """Inbound side of groups in a shard that has no groups."""

    def __init__(self, events: GroupEvents, notes: CrossShardMessages, wakeups: ShardWakeups) -> None:
        """Create the inbound side.

        events: of a shard without groups
        """
        self._events = events
        self._notes = notes
        self._wakeups = wakeups

    async def open(self, deliveries: Sequence[Deliver]) -> Arrivals:
        """Return the arrivals of a batch. Nothing must be read."""
        return ForwardedArrivals(self._events, self._notes, self._wakeups)


class ForwardedArrivals(Arrivals):
    """Cross-shard messages of one batch to the first shard.

    The network delivers no group envelopes here. Those that arrive anyway are treated as unusable.
    """

    def __init__(self, events: GroupEvents, notes: CrossShardMessages, wakeups: ShardWakeups) -> None:
        super().__init__(events, {}, ReceiptSteps({}))
        self._make = notes
        self._wakeups = wakeups
        self._notes: list[CrossShardMessage] = []

    def decrypt(self, delivery: Deliver, spend: e2ee.Spend) -> bytes:
        raise e2ee.InvalidMessage("a group message for another shard")

    def take_key(self, sender: str, content: SenderKey) -> None:
        self._notes.append(self._make.to_first(cross_shard.KEY, sender, content.group, content.distribution))

    def key_requested(self, sender: str, content: SenderKeyRequest) -> None:
        self._notes.append(self._make.to_first(cross_shard.ASKED, sender, content.group))

    def start_over(self, peer: str) -> None:
        self._notes.append(self._make.to_first(cross_shard.LOST, peer))

    def changed(self, delivery: Deliver) -> notices.SystemContent | None:
        return None

    def receipt(self, delivery: Deliver, message_id: str, reached: Status) -> bool:
        return False

    def changes(self) -> GroupChanges | None:
        made = GroupChanges(self._account, withdrawn=self._withdrawn, notes=self._notes)
        return made or None

    def committed(self) -> None:
        if self._notes:
            self._wakeups.wake(cross_shard.FIRST)
