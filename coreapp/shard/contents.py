"""Opens the stored content of a message for operators, until it is delivered, and records who has seen it."""

from __future__ import annotations

import functools
import logging

from coreapp.errors import RequestRefused
from coreapp.recovery.sent_content import KeptContents
from coreapp.shard.shard import Shard
from tidings import e2ee
from tidings.storage.business import audit_entries, messages
from tidings.storage.business.audit_entries import AuditAction
from tidings.wire import codes, core

log = logging.getLogger(__name__)


async def show(shard: Shard, question: core.ShowMessage) -> core.Shown:
    """Return the requested content, and record in the audit who requested it. Raises `RequestRefused` if it is not
    stored.
    """
    async with shard.context.database.reading() as connection:
        found = await messages.list_kept(connection, shard.context.account, [question.id])
    if not found:
        raise RequestRefused(codes.NOT_FOUND, "the content is deleted once the message is delivered or has failed")
    row = found[0]
    try:
        content = shard.recovery.sent_contents.open(row, KeptContents.decode(row.kept))
    except (e2ee.CorruptState, e2ee.UnknownSealingKey) as error:
        raise RequestRefused(codes.INTERNAL_ERROR, f"the content cannot be opened: {error}") from None
    context, by = shard.context, question.by
    add = functools.partial(
        audit_entries.add,
        account=context.account,
        action=AuditAction.SHOW_MESSAGE,
        subject=question.id,
        by=by,
        at=context.now(),
    )
    await context.persist(add)
    log.info("content.shown", extra={"id": question.id, "by": by})
    return core.Shown(question.n, content)
