"""Messages that a business may react to over the Cloud API."""

from __future__ import annotations

import msgspec

from coreapp.context import ShardContext
from tidings.storage.business import messages
from tidings.wire import core, ids

REACTION = "reaction"  # type of a message
DAY_MS = 24 * 3600 * 1000
OLDEST_MS = 30 * DAY_MS  # age of a message
# Retention of messages that are read or failed (`coreapp.retention`).
KEPT_MS = DAY_MS
NO_TARGET = "reaction.message_id: is no message of this conversation in the last 30 days, or is itself a reaction"


async def has_target(context: ShardContext, request: core.AcceptMessage) -> bool:
    """Return whether a message is not a reaction, or reacts to a message to or from its recipient of the last 30 days.

    A message of the business that is old enough for its row to have expired counts as known.
    """
    if request.kind != REACTION:
        return True
    target, now = str(msgspec.json.decode(request.content)[REACTION]["message_id"]), context.now()
    found = await context.database.query(lambda connection: messages.find(connection, context.account, target))
    if found is not None:
        return found.peer == request.to and found.kind != REACTION and found.created_at > now - OLDEST_MS
    made_at = ids.made_at(target)
    return made_at is not None and now - OLDEST_MS < made_at * 1000 < now - KEPT_MS
