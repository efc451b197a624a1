"""Texts of one callback, opened for an administrator of its number."""

from __future__ import annotations

import logging

from coreapp.context import ShardContext
from coreapp.errors import RequestRefused
from tidings.storage.business import callback_views
from tidings.storage.business.callbacks import Callback
from tidings.wire import codes, core

log = logging.getLogger(__name__)


async def read(context: ShardContext, question: core.ReadCallback) -> core.CallbackText:
    """Return the body of a callback, in whatever state, and the responses to its attempts. Raises `RequestRefused`."""
    record = await context.database.query(
        lambda connection: callback_views.read_callback(connection, context.account, question.seq)
    )
    if record is None:
        raise RequestRefused(codes.NOT_FOUND, "no such callback, or its history has expired")
    entry = record.entry
    stored = Callback(
        entry.seq, entry.shard, context.account, entry.subject, entry.kind, record.body, entry.created_at
    )
    (opened,) = context.bodies.open([stored])
    responses = {str(one.at): context.bodies.open_response(one) for one in record.attempts if one.response is not None}
    return core.CallbackText(question.n, opened.body, responses)
