"""Opens the stored content of a message for operators, until it is delivered."""

from __future__ import annotations

import logging

from coreapp.errors import RequestRefused
from coreapp.recovery.sent_content import KeptContents
from coreapp.shard.shard import Shard
from tidings import e2ee
from tidings.storage.business import messages
from tidings.wire import codes, core

log = logging.getLogger(__name__)


async def show(shard: Shard, question: core.ShowMessage) -> core.Shown:
    """Return the requested content, and log who requested it. Raises `RequestRefused` if it is not stored."""
    async with shard.context.database.reading() as connection:
        found = await messages.list_kept(connection, shard.context.account, [question.id])
    if not found:
        raise RequestRefused(codes.NOT_FOUND, "the content is deleted once the message is delivered or has failed")
    row = found[0]
    try:
        content = shard.recovery.sent_contents.open(row, KeptContents.decode(row.kept))
    except (e2ee.CorruptState, e2ee.UnknownSealingKey) as error:
        raise RequestRefused(codes.INTERNAL_ERROR, f"the content cannot be opened: {error}") from None
    log.info("content.shown", extra={"id": question.id, "by": question.by})
    return core.Shown(question.n, content)
