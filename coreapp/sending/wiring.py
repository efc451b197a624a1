"""Wiring of the path from a job to the network's response, for one shard."""

from __future__ import annotations

import dataclasses
from typing import Protocol

from coreapp.capacity import Admission, CapacityGate
from coreapp.context import ShardContext
from coreapp.peers.contact_cache import ContactCache
from coreapp.peers.identities import Identities
from coreapp.peers.sessions import SessionStore
from coreapp.peers.wiring import ShardPeers
from coreapp.sending.encryption import Encryption
from coreapp.sending.failures import JobFailures
from coreapp.sending.read_marks import ReadMarks
from coreapp.sending.transmission import Transmitter
from coreapp.sending.typing_indicators import TypingIndicators
from coreapp.statuses.wiring import Statuses
from coreapp.webhook.wiring import Webhook
from tidings.storage.business import job_errors


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Sending:
    """Sending parts of one shard."""

    admission: Admission  # checked before any job is created
    failures: JobFailures  # failed attempts at jobs
    encryption: Encryption
    transmitter: Transmitter
    read_marks: ReadMarks
    typing_indicators: TypingIndicators


class MakeEncryption(Protocol):
    """Creates what takes jobs that are not encrypted: `Encryption`, or for some numbers a class that inherits from
    it.
    """

    def __call__(
        self,
        context: ShardContext,
        sessions: SessionStore,
        identities: Identities,
        contacts: ContactCache,
        *,
        transmitter: Transmitter,
        failures: JobFailures,
    ) -> Encryption: ...


async def wire_sending(
    context: ShardContext,
    webhook: Webhook,
    statuses: Statuses,
    *,
    peers: ShardPeers,
    make_encryption: MakeEncryption = Encryption,
) -> Sending:
    """Wire the package. The sender for groups is set at the transmitter later."""
    admission = Admission(
        jobs=CapacityGate("job", context.settings.job_queue_limit),
        count_jobs=context.count,
        callbacks=CapacityGate("callback", context.settings.callback_queue_limit),
        count_callbacks=webhook.admission.count,
    )
    async with context.database.reading() as connection:
        failures = JobFailures(context, await job_errors.list_of_shard(connection, context.shard))
    transmitter = Transmitter(context, statuses, failures=failures)
    encryption = make_encryption(
        context, peers.sessions, peers.identities, peers.contacts, transmitter=transmitter, failures=failures
    )
    peers.identities.on_change(transmitter.withdraw)
    peers.identities.on_change(encryption.reject)
    return Sending(
        admission=admission,
        failures=failures,
        encryption=encryption,
        transmitter=transmitter,
        read_marks=ReadMarks(context, statuses.tracker, admission=admission, transmitter=transmitter),
        typing_indicators=TypingIndicators(context, peers.sessions, encryption=encryption),
    )
