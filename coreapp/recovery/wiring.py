"""Wiring of session repair and repeated messages for one shard."""

from __future__ import annotations

import dataclasses

from coreapp.context import ShardContext
from coreapp.media.wiring import ShardMedia
from coreapp.peers.wiring import ShardPeers
from coreapp.recovery.control_messages import ControlMessages
from coreapp.recovery.recovering import UndecryptedReports
from coreapp.recovery.resending import RetryRequestHandler
from coreapp.recovery.sent_content import SentContents
from coreapp.recovery.session_repair import Budget, SessionRepair
from coreapp.sending.wiring import Sending
from coreapp.statuses.wiring import Statuses
from tidings.storage.business import undecrypted


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Recovery:
    """Recovery parts of one shard."""

    sent_contents: SentContents
    control_messages: ControlMessages
    session_repair: SessionRepair  # reacts to messages that we could not decrypt
    resending: RetryRequestHandler  # repeats messages that recipients request again from us
    recovering: UndecryptedReports  # service: messages that we requested again, reported if they do not arrive


async def wire_recovery(
    context: ShardContext,
    statuses: Statuses,
    *,
    peers: ShardPeers,
    sending: Sending,
    media: ShardMedia,
) -> Recovery:
    """Wire the package and read the messages that the previous owner waited for."""
    async with context.database.reading() as connection:
        left = await undecrypted.list_all(connection, context.shard)
    budget = Budget(context.clock)
    contents = SentContents(context.device, peers.sessions)
    encryption, tracker = sending.encryption, statuses.tracker
    return Recovery(
        sent_contents=contents,
        control_messages=ControlMessages(
            context, encryption=encryption, preparation=media.preparation_queue, tracker=tracker
        ),
        session_repair=SessionRepair(peers.sessions, encryption, budget),
        resending=RetryRequestHandler(
            context, contents, sessions=peers.sessions, encryption=encryption, tracker=tracker, budget=budget
        ),
        recovering=UndecryptedReports(context, left),
    )
