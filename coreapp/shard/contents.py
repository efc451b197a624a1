"""Opens stored contents for operators: the body of a callback, and the content of a message until it is delivered."""

from __future__ import annotations

import logging

from coreapp.errors import RequestRefused
from coreapp.recovery.sent_content import KeptContents
from coreapp.shard.shard import Shard
from tidings import e2ee
from tidings.storage.business import callbacks, messages
from tidings.wire import codes, core

log = logging.getLogger(__name__)


async def show(shard: Shard, question: core.ShowCallback | core.ShowMessage) -> core.Shown:
    """Return the requested content, and log who requested it. Raises `RequestRefused` if it is not stored."""
    if isinstance(question, core.ShowCallback):
        content = await _callback(shard, question.seq)
        about = {"event_id": callbacks.event_id(question.seq)}
    else:
        content = await _message(shard, question.id)
        about = {"id": question.id}
    log.info("content.shown", extra={**about, "by": question.by})
    return core.Shown(question.n, content)


async def _callback(shard: Shard, seq: int) -> bytes:
    async with shard.context.database.reading() as connection:
        found = shard.context.bodies.open(await callbacks.list_any(connection, shard.context.shard, [seq]))
    if not found or not found[0].body:
        raise RequestRefused(codes.NOT_FOUND, "the callback is not stored any more, or cannot be opened")
    return found[0].body


async def _message(shard: Shard, message_id: str) -> bytes:
    async with shard.context.database.reading() as connection:
        found = await messages.list_kept(connection, shard.context.account, [message_id])
    if not found:
        raise RequestRefused(codes.NOT_FOUND, "the content is deleted once the message is delivered or has failed")
    row = found[0]
    try:
        return shard.recovery.sent_contents.open(row, KeptContents.decode(row.kept))
    except (e2ee.CorruptState, e2ee.UnknownSealingKey) as error:
        raise RequestRefused(codes.INTERNAL_ERROR, f"the content cannot be opened: {error}") from None
