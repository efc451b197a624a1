"""Texts of one callback, opened for an administrator of its number."""

from __future__ import annotations

from coreapp import audit
from coreapp.context import ShardContext
from coreapp.errors import RequestRefused
from tidings.storage.business import callback_views
from tidings.storage.business.audit_entries import AuditAction
from tidings.storage.business.callbacks import Callback
from tidings.wire import codes, core


async def read(context: ShardContext, request: core.ReadCallback) -> core.CallbackText:
    """Return the body of a callback, in whatever state, and the responses to its attempts, and record who requested
    them. Raises `RequestRefused`.
    """
    record = await context.database.query(
        lambda connection: callback_views.read_callback(connection, context.account, request.seq), retry_seconds=5.0
    )
    if record is None:
        raise RequestRefused(codes.NOT_FOUND, "no such callback, or its history has expired")
    await audit.record(context, AuditAction.SHOW_CALLBACK, record.entry.event_id, request.by)
    entry, bodies = record.entry, context.bodies
    responses = [
        core.AttemptResponse(one.at, bodies.open_response(one)) for one in record.attempts if one.response is not None
    ]
    if record.ended is not None:
        texts = bodies.open_ended(context.account, record.ended)
        if texts.response:
            responses.append(core.AttemptResponse(record.ended.entry.at, texts.response))
        return core.CallbackText(request.n, texts.body, responses)
    stored = Callback(
        entry.seq, entry.shard, context.account, entry.subject, entry.kind, record.body or b"", entry.created_at
    )
    (opened,) = bodies.open([stored])
    return core.CallbackText(request.n, opened.body, responses)
