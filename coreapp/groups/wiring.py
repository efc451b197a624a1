"""Wiring of groups for one shard."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from coreapp.context import ShardContext
from coreapp.groups.arrivals import GroupEvents
from coreapp.groups.cross_shard import CrossShardMessages, SentElsewhere
from coreapp.groups.key_messages import KeyMessages
from coreapp.groups.key_requests import KeyRequests
from coreapp.groups.lost_keys import LostKeys
from coreapp.groups.own_keys import OwnKeys
from coreapp.groups.peer_keys import PeerKeys
from coreapp.groups.receipts import GroupReceipts
from coreapp.groups.replica import GroupReplicas
from coreapp.groups.requests import GroupRequests
from coreapp.groups.sender import GroupSender
from coreapp.sending.wiring import Sending
from coreapp.statuses.wiring import Statuses
from tidings.client.groups import GroupApi
from tidings.storage.business import groups, sender_keys
from tidings.storage.business.groups import StoredGroup
from tidings.storage.business.jobs import Job
from tidings.storage.business.sender_keys import KeyHolder

RESPONSE_SECONDS = 10.0  # timeout of a call to the network in seconds, for which a Webapp waits


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ShardGroups:
    """Group parts of one shard."""

    replicas: GroupReplicas
    sender: GroupSender  # encrypts messages to groups
    requests: GroupRequests  # handles requests of Webapps
    events: GroupEvents  # handles deliveries from groups
    lost_keys: LostKeys
    notes: CrossShardMessages  # creates cross-shard messages
    sent_elsewhere: SentElsewhere  # tracks jobs that other shards send for this one

    async def close(self) -> None:
        """Leave pending work to the next owner."""
        await self.sent_elsewhere.close()
        await self.lost_keys.close()
        await self.sender.close()
        await self.replicas.close()


async def wire_groups(context: ShardContext, statuses: Statuses, sending: Sending, left: Sequence[Job]) -> ShardGroups:
    """Wire the groups of the first shard, or the forwarding of another one.

    left: jobs of the previous owner
    """
    known: Sequence[StoredGroup] = ()
    under_way: Sequence[KeyHolder] = ()
    sent_elsewhere, notes = SentElsewhere(context), CrossShardMessages(context)
    elsewhere: set[str] = set()
    ids = {job.id for job in left}
    if context.lease.is_first:
        async with context.database.reading() as connection:
            known = await groups.list_groups(connection, context.account)
            under_way = await sender_keys.list_under_way(connection, context.account)
        elsewhere = await sent_elsewhere.list_unsent([holder.job for holder in under_way if holder.job not in ids])
    own = OwnKeys(context, ids | elsewhere)
    await own.load([holder.group_id for holder in under_way])
    api = GroupApi(context.network, context.device, seconds=RESPONSE_SECONDS)
    replicas = GroupReplicas(context, api, known)
    key_messages = KeyMessages(context, sending, statuses.tracker, notes=notes, sent_elsewhere=sent_elsewhere)
    sender = GroupSender(context, sending, key_messages, replicas=replicas, keys=own)
    sender.resume(left, under_way, elsewhere)
    sent_elsewhere.on_finished = sender.finished
    sent_elsewhere.watch(elsewhere)
    sending.transmitter.groups = sender
    lost_keys = LostKeys(context, replicas, own, notes)
    events = GroupEvents(
        context=context,
        notes=notes,
        replicas=replicas,
        own=own,
        peers=PeerKeys(context),
        sender=sender,
        requests=KeyRequests(context, key_messages),
        receipts=GroupReceipts(context, statuses.reports),
        lost_keys=lost_keys,
    )
    return ShardGroups(
        replicas=replicas,
        sender=sender,
        requests=GroupRequests(context, api, replicas),
        events=events,
        lost_keys=lost_keys,
        notes=notes,
        sent_elsewhere=sent_elsewhere,
    )
