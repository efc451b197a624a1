"""Deliveries about groups: messages, sender keys and requests for them, receipts, changes of a group.

Each batch of deliveries has one `Arrivals`. It handles them one by one, changes the keys in memory, and collects the
changes to commit with the batch.
"""

from __future__ import annotations

import dataclasses
import functools
import logging
from collections.abc import Sequence

from prometheus_client import Counter

from coreapp.context import ShardContext
from coreapp.groups import cross_shard, notices
from coreapp.groups.cross_shard import CrossShardMessages
from coreapp.groups.key_requests import KeyRequests
from coreapp.groups.lost_keys import LostKeys
from coreapp.groups.own_keys import OwnKeys
from coreapp.groups.peer_keys import PeerKeys, Records
from coreapp.groups.receipts import GroupReceipts, ReceiptSteps
from coreapp.groups.replica import GroupReplicas
from coreapp.groups.sender import GroupSender
from coreapp.webhook import inbound
from tidings import e2ee
from tidings.client import sender_keys
from tidings.storage.business.cross_shard_messages import CrossShardMessage
from tidings.storage.business.group_changes import GroupChanges
from tidings.storage.business.group_messages import UnreadGroupMessage
from tidings.storage.business.groups import StoredGroup
from tidings.storage.business.messages import Status
from tidings.storage.business.sender_keys import KeyHolder
from tidings.wire import device, groups
from tidings.wire.content import NULL, SenderKey, SenderKeyRequest
from tidings.wire.device import Deliver

log = logging.getLogger(__name__)

KEYS = Counter("tidings_sender_keys_received_total", "Sender keys received", ["outcome"])

_count_key = functools.cache(KEYS.labels)
_FROM_PEOPLE = (device.PREKEY, device.MESSAGE, device.GROUP, device.IDENTITY)
_RECEIPTS = (device.DELIVERED, device.READ)


@dataclasses.dataclass(eq=False, repr=False, slots=True, kw_only=True)
class GroupEvents:
    """Inbound side of one account's groups. Other shards than the first forward everything to that one, which has the
    groups.
    """

    context: ShardContext
    notes: CrossShardMessages
    replicas: GroupReplicas
    own: OwnKeys
    peers: PeerKeys
    sender: GroupSender
    requests: KeyRequests
    receipts: GroupReceipts
    lost_keys: LostKeys

    async def open(self, deliveries: Sequence[Deliver]) -> Arrivals:
        """Load the state that these deliveries may need. One batch at a time. Does nothing where no group is
        concerned.
        """
        if not self.context.lease.is_first:
            return ForwardedArrivals(self, {}, ReceiptSteps({}))
        senders: list[str] = []
        shared_groups: list[str] = []
        messages: list[str] = []
        members: list[str] = []
        for delivery in deliveries:
            if delivery.kind in cross_shard.FOR_FIRST:
                senders.append(delivery.sender)
                shared_groups += self.replicas.groups_of(delivery.sender)
            elif delivery.kind in _FROM_PEOPLE:
                shared = self.replicas.groups_of(delivery.sender)
                if shared or delivery.kind == device.GROUP:
                    senders.append(delivery.sender)
                    shared_groups += shared
            elif delivery.kind == device.GROUP_CHANGED:
                shared_groups.append(delivery.group)
            elif delivery.group and delivery.kind in _RECEIPTS:
                messages += delivery.refs
                members.append(delivery.sender)
        if shared_groups:
            await self.own.load(shared_groups)
        records = await self.peers.load(senders) if senders else {}
        return Arrivals(self, records, await self.receipts.load(messages, members))


class Arrivals:
    """Changes of one batch. No method waits."""

    def __init__(self, events: GroupEvents, records: dict[str, Records], steps: ReceiptSteps) -> None:
        self._events = events
        self._account = events.context.account
        self._records = records
        self.steps = steps
        self._groups: dict[str, StoredGroup] = {}
        self._holders: list[KeyHolder] = []
        self._used: dict[tuple[str, str], e2ee.SenderKeyRecord] = {}
        self._dropped: list[tuple[str, str]] = []
        self._unread: list[UnreadGroupMessage] = []
        self._withdrawn: dict[str, list[str]] = {}
        self._ended_notes: list[str] = []
        # Work to start once the batch is on disk.
        self._unfinished: list[str] = []
        self._lacking: list[tuple[str, str]] = []
        self._requested: list[str] = []
        self._late: list[str] = []

    def decrypt(self, delivery: Deliver, spend: e2ee.Spend) -> bytes:
        """Return the plaintext of a group message. Raises `e2ee.E2EEError`; a missing key will be requested. Raises
        `SenderKeyPending` while the key may still arrive.

        spend: called before work that exceeds what nearly every message needs
        """
        group_id, sender = delivery.group, delivery.sender
        record = self._records.get(sender, {}).get(group_id)
        if not group_id:
            raise e2ee.InvalidMessage("a group message without a group")
        awaited = self._events.requests
        awaited.require_first(delivery)
        try:
            plaintext = sender_keys.read(record, delivery.body, spend)
        except e2ee.NoSession:
            awaited.lacking(delivery)
            self._lacking.append((group_id, sender))
            raise
        except e2ee.E2EEError as error:
            awaited.settled(delivery)
            if isinstance(error, e2ee.TooFarAhead):
                self._lacking.append((group_id, sender))
            raise
        assert record is not None
        awaited.settled(delivery)
        self._used[group_id, sender] = record
        return plaintext

    def note(self, delivery: Deliver) -> None:
        """Handle a cross-shard message for the shard that has the groups."""
        self._ended_notes.append(delivery.id)
        if delivery.kind == cross_shard.KEY:
            self.take_key(delivery.sender, SenderKey(delivery.group, delivery.body))
        elif delivery.kind == cross_shard.REQUESTED:
            self.key_requested(delivery.sender, SenderKeyRequest(delivery.group))
        else:
            self.start_over(delivery.sender)

    def received(self, delivery: Deliver) -> None:
        """Record a user message of a group as unread."""
        self._unread.append(
            UnreadGroupMessage(delivery.id, self._account, delivery.group, delivery.sender, delivery.timestamp)
        )

    def withdrawn(self, author: str, message_id: str) -> None:
        """Record that an author revoked a message. Takes effect only if the message is theirs."""
        self._withdrawn.setdefault(author, []).append(message_id)

    def understood(self, message: inbound.Inbound, sender: str, group_id: str) -> inbound.Inbound:
        """Return a message as users see it. Messages between devices are handled here and replaced by `null`.

        group_id: group that it was sent to; empty for a message in our session with the sender
        """
        if isinstance(message.content, SenderKey | SenderKeyRequest):
            # Only a message in a session is authenticated and for us alone.
            if not group_id and isinstance(message.content, SenderKey):
                self.take_key(sender, message.content)
            elif not group_id and isinstance(message.content, SenderKeyRequest):
                self.key_requested(sender, message.content)
            return inbound.Inbound(NULL)
        if message.context is not None:
            message.context.group_id = group_id or None
        return message

    def take_key(self, sender: str, content: SenderKey) -> None:
        """Accept a participant's sender key, received in our session with them."""
        group = self._events.replicas.find(content.group)
        if group is None or not group.is_member or all(number != sender for number, _ in group.participants):
            log.warning("sender_key.not_a_participant", extra={"group": content.group, "from": sender})
            _count_key("not_a_participant").inc()
            return
        records = self._records.get(sender)
        if records is None:
            # They joined in this batch.
            records = self._records[sender] = self._events.peers.of(sender)
        try:
            record = sender_keys.add_key(records.get(group.id), content.distribution)
        except e2ee.E2EEError as error:
            log.warning("sender_key.unusable", extra={"group": group.id, "from": sender, "error": repr(error)})
            _count_key("unusable").inc()
            return
        records[group.id] = record
        self._used[group.id, sender] = record
        _count_key("taken").inc()

    def key_requested(self, sender: str, content: SenderKeyRequest) -> None:
        """Handle a participant's request for our key: it is sent again, at the latest before the next message."""
        if content.group not in self._events.replicas.groups_of(sender):
            log.warning("sender_key.requester_not_a_participant", extra={"group": content.group, "from": sender})
            return
        if self._events.requests.may_send_key(content.group, sender):
            self._lost(content.group, sender)
            self._requested.append(content.group)

    def start_over(self, peer: str) -> None:
        """Send all our keys again to a participant whose new device has none of them."""
        for group_id in self._events.replicas.groups_of(peer):
            self._lost(group_id, peer)

    def changed(self, delivery: Deliver) -> notices.SystemContent | None:
        """Apply a notice of a changed group. Returns the content for the webhook; None for an unusable notice."""
        notice = notices.read(delivery.body)
        group_id = delivery.group
        if notice is None or not group_id:
            log.warning("group.unreadable_notice", extra={"group": group_id, "id": delivery.id})
            return None
        replicas = self._events.replicas
        outcome = notices.apply(replicas.find(group_id), notice, self._account, group_id, delivery.timestamp // 1000)
        if outcome.group is not None and outcome.group != replicas.find(group_id):
            replicas.take(outcome.group)
            self._groups[group_id] = outcome.group
        if not outcome.is_whole:
            self._unfinished.append(group_id)
        if notice.change == groups.JOINED:
            for number in notice.numbers:
                # A returning participant may have deleted our key.
                self._lost(group_id, number)
        elif notice.change in groups.GONE:
            for number in notice.numbers:
                if not self._is_member(group_id, number):
                    self._records.get(number, {}).pop(group_id, None)
                    self._events.peers.evict(number, group_id)
                    self._used.pop((group_id, number), None)
                    self._dropped.append((group_id, number))
        log.info("group.changed", extra={"group": group_id, "change": notice.change, "epoch": notice.epoch})
        return notices.system(notice, group_id)

    def receipt(self, delivery: Deliver, message_id: str, reached: Status) -> bool:
        """Record that a participant received or read one of our messages. Returns whether that was new."""
        seconds = delivery.timestamp // 1000
        return self._events.receipts.note(self.steps, message_id, delivery.sender, reached, seconds, delivery.group)

    def changes(self) -> GroupChanges | None:
        """Return the changes to commit with the batch; None for none. Nothing else may run between this call and the
        journal's `put`.
        """
        made = GroupChanges(
            self._account,
            groups=list(self._groups.values()),
            holders=self._holders,
            peer_keys=[
                self._events.peers.sealed(sender, group_id, record) for (group_id, sender), record in self._used.items()
            ],
            dropped_peer_keys=self._dropped,
            receipts=list(self.steps.changed.values()),
            unread=self._unread,
            withdrawn=self._withdrawn,
            ended_notes=self._ended_notes,
        )
        return made or None

    def committed(self) -> None:
        """Start the follow-up work. Called once the batch is on disk, or if there was nothing to write."""
        for member in self._late:
            self._events.lost_keys.resend_soon(member)
        for group_id in self._unfinished:
            self._events.replicas.refresh_soon(group_id)
        for group_id, author in dict.fromkeys(self._lacking):
            self._events.requests.request_key(group_id, author)
        for group_id in dict.fromkeys([*self._requested, *self._groups]):
            # Messages that waited for the previous participants may be ready now.
            if group_id in self._requested:
                self._events.sender.hand_over(group_id)
            else:
                self._events.sender.wake(group_id)

    def _lost(self, group_id: str, member: str) -> None:
        """Mark a participant as lacking our key."""
        key = self._events.own.find(group_id)
        if key is None:
            # The group became known after the batch was opened.
            self._late.append(member)
        else:
            self._holders += key.lost_by(member)

    def _is_member(self, group_id: str, number: str) -> bool:
        group = self._events.replicas.find(group_id)
        return group is not None and any(member == number for member, _ in group.participants)


class ForwardedArrivals(Arrivals):
    """Cross-shard messages of one batch to the first shard, committed before the deliveries are acknowledged:
    participants' keys, requests for ours, new devices.

    The network delivers no group envelopes here. Those that arrive anyway are treated as unusable.
    """

    def __init__(self, events: GroupEvents, records: dict[str, Records], steps: ReceiptSteps) -> None:
        super().__init__(events, records, steps)
        self._notes: list[CrossShardMessage] = []

    def decrypt(self, delivery: Deliver, spend: e2ee.Spend) -> bytes:
        raise e2ee.InvalidMessage("a group message for another shard")

    def take_key(self, sender: str, content: SenderKey) -> None:
        self._notes.append(self._events.notes.to_first(cross_shard.KEY, sender, content.group, content.distribution))

    def key_requested(self, sender: str, content: SenderKeyRequest) -> None:
        self._notes.append(self._events.notes.to_first(cross_shard.REQUESTED, sender, content.group))

    def start_over(self, peer: str) -> None:
        self._notes.append(self._events.notes.to_first(cross_shard.LOST, peer))

    def changed(self, delivery: Deliver) -> notices.SystemContent | None:
        return None

    def receipt(self, delivery: Deliver, message_id: str, reached: Status) -> bool:
        return False

    def changes(self) -> GroupChanges | None:
        return GroupChanges(self._account, withdrawn=self._withdrawn, notes=self._notes) or None

    def committed(self) -> None:
        if self._notes:
            context = self._events.context
            context.shared.wakeups.wake(context.lease.first_shard)
