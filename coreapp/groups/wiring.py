"""Groups, wired for one shard."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from coreapp.context import ShardContext
from coreapp.groups.arrivals import GroupEvents
from coreapp.groups.key_messages import KeyMessages
from coreapp.groups.key_requests import KeyRequests
from coreapp.groups.lost_keys import LostKeys
from coreapp.groups.own_keys import OwnKeys
from coreapp.groups.peer_keys import PeerKeys
from coreapp.groups.read_marks import GroupReadMarks
from coreapp.groups.receipts import GroupReceipts
from coreapp.groups.replica import GroupReplicas
from coreapp.groups.requests import GroupRequests
from coreapp.groups.sender import GroupSender
from coreapp.sending.wiring import Sending
from coreapp.statuses.wiring import Statuses
from tidings.client.groups import GroupApi
from tidings.storage.business import groups, sender_keys
from tidings.storage.business.jobs import Job

ANSWER_SECONDS = 10.0  # that the network has for a call: a Webapp waits for it


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Groups:
    """sender: encrypts messages to groups; requests: of Webapps; events: what arrives from groups."""

    replicas: GroupReplicas
    sender: GroupSender
    requests: GroupRequests
    events: GroupEvents
    read_marks: GroupReadMarks
    lost_keys: LostKeys

    async def close(self) -> None:
        """Leave what is under way to the next owner."""
        await self.lost_keys.close()
        await self.sender.close()
        await self.replicas.close()


async def wire_groups(context: ShardContext, statuses: Statuses, sending: Sending, left: Sequence[Job]) -> Groups:
    """left: the jobs of the last owner."""
    database, device, account = context.database, context.device, context.account
    async with database.reading() as connection:
        known = await groups.list_groups(connection, account)
        under_way = await sender_keys.list_under_way(connection, account)
    own = OwnKeys(database, device, [job.id for job in left])
    await own.load([holder.group_id for holder in under_way])
    api = GroupApi(context.network, device, seconds=ANSWER_SECONDS)
    replicas = GroupReplicas(api, context.journal, known, account=account)
    key_messages = KeyMessages(context, sending, statuses.tracker)
    sender = GroupSender(context, sending, key_messages, replicas=replicas, keys=own)
    sender.resume(left, under_way)
    sending.encryption.encrypt_groups_with(sender)
    sending.transmitter.encrypt_groups_with(sender)
    lost_keys = LostKeys(context, replicas, own)
    events = GroupEvents(
        account=account,
        replicas=replicas,
        own=own,
        peers=PeerKeys(database, device),
        sender=sender,
        requests=KeyRequests(key_messages, context.clock),
        receipts=GroupReceipts(context, statuses.reports),
        lost_keys=lost_keys,
    )
    return Groups(
        replicas=replicas,
        sender=sender,
        requests=GroupRequests(api, replicas, account=account, invite_url=context.settings.invite_url),
        events=events,
        read_marks=GroupReadMarks(database, sending.read_receipts, account=account),
        lost_keys=lost_keys,
    )
