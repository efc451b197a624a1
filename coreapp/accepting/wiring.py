"""Wiring of the path from a request to a committed job, for one shard."""

from __future__ import annotations

import dataclasses

from coreapp.accepting.checks import RecipientChecks
from coreapp.accepting.idempotency import IdempotencyKeys
from coreapp.accepting.job_queue import JobQueue
from coreapp.accepting.purge import JobPurge
from coreapp.accepting.repeats import MessageRequests
from coreapp.accepting.tier_rises import TierRises
from coreapp.context import ShardContext
from coreapp.groups.wiring import ShardGroups
from coreapp.media.wiring import ShardMedia
from coreapp.peers.wiring import ShardPeers
from coreapp.recovery.wiring import Recovery
from coreapp.sending.wiring import Sending
from coreapp.statuses.wiring import Statuses
from coreapp.webhook.wiring import Webhook


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Accepting:
    checks: RecipientChecks
    requests: MessageRequests
    jobs: JobQueue
    purge: JobPurge
    idempotency_keys: IdempotencyKeys
    tier_rises: TierRises  # service of the first shard that raises the messaging limit of the Cloud API


def wire_accepting(
    context: ShardContext,
    webhook: Webhook,
    statuses: Statuses,
    *,
    peers: ShardPeers,
    sending: Sending,
    media: ShardMedia,
    groups: ShardGroups,
    recovery: Recovery,
    checks: RecipientChecks | None = None,
) -> Accepting:
    """Nothing that the last owner left is resumed yet.

    checks: checks of recipients; None for those of a number that uses the network
    """
    keys = IdempotencyKeys(context)
    checks = checks or RecipientChecks(context, peers, groups.requests)
    jobs = JobQueue(
        context,
        checks,
        keys,
        delay=webhook.delay,
        statuses=statuses,
        sending=sending,
        preparation=media.preparation_queue,
        recovery=recovery,
    )
    requests = MessageRequests(context, jobs.accept, webhook.delay)
    places = (media.preparation_queue, groups.sender, sending.encryption, context.quarantine)
    jobs.expiry.set_queues(places)
    purge = JobPurge(context=context, tracker=statuses.tracker, places=places, transmitter=sending.transmitter)
    return Accepting(
        checks=checks,
        requests=requests,
        jobs=jobs,
        purge=purge,
        idempotency_keys=keys,
        tier_rises=TierRises(context),
    )
