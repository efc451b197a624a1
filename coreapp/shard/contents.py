"""Opens the stored content of a message for operators, until it is delivered, and records who has seen it."""

from __future__ import annotations

from coreapp import audit
from coreapp.errors import RequestRefused
from coreapp.recovery.sent_content import KeptContents
from coreapp.shard.shard import Shard
from tidings import e2ee
from tidings.storage.business import messages
from tidings.storage.business.audit_entries import AuditAction
from tidings.wire import codes, core


async def show(shard: Shard, request: core.ShowMessage) -> core.Shown:
    """Return the requested content, and record in the audit who requested it. Raises `RequestRefused` if it is not
    stored.
    """
    async with shard.context.database.reading() as connection:
        found = await messages.list_kept(connection, shard.context.account, [request.id])
    if not found:
        raise RequestRefused(codes.NOT_FOUND, "the content is deleted once the message is delivered or has failed")
    row = found[0]
    try:
        content = shard.recovery.sent_contents.open(row, KeptContents.decode(row.kept))
    except (e2ee.CorruptState, e2ee.UnknownSealingKey) as error:
        raise RequestRefused(codes.INTERNAL_ERROR, f"the content cannot be opened: {error}") from None
    await audit.record(shard.context, AuditAction.SHOW_MESSAGE, request.id, request.by)
    return core.Shown(request.n, content)
