"""Webhooks of the Cloud API that a test requests (`POST /tidings/webhooks`)."""

from __future__ import annotations

from typing import Any

import msgspec

from coreapp.context import ShardContext
from coreapp.errors import RequestRefused
from coreapp.journal.change import Change
from coreapp.webhook import events
from coreapp.webhook.cloud import envelope
from coreapp.webhook.queue import CallbackQueue, at_limit
from tidings.wire import codes, core
from tidings.wire.cloud.identity import NumberIdentity

# Fields whose values name the number.
_OF_NUMBER = frozenset(
    ("business_username_update", "phone_number_name_update", "phone_number_quality_update", "security")
)
_OF_USERS = "user_preferences"


async def queue(context: ShardContext, waiting: CallbackQueue, request: core.QueueWebhook) -> None:
    """Commit a callback with the requested field and value. Raises `RequestRefused` and `LeaseLost`."""
    if not context.settings.testing:
        raise RequestRefused(codes.ACCESS_DENIED, "POST /tidings/webhooks needs a Coreapp with TIDINGS_TESTING=1")
    cloud = context.config.cloud
    if cloud is None:
        details = f"{context.account} has no webhook of the Cloud API: set a callback and subscribe the app to the WABA"
        raise RequestRefused(codes.PARAMETER_INVALID, details)
    if len(waiting) >= context.settings.callback_queue_limit:
        raise at_limit()
    callback = events.account_change(
        context,
        request.field,
        _completed(cloud.identity, request.field, msgspec.json.decode(request.value, type=dict[str, Any])),
        int(context.clock.now()),
        subject=request.field,
        event=request.event,
    )
    if callback is None:
        details = f"field: the app is not subscribed to {request.field}, or has no callback of its own"
        raise RequestRefused(codes.PARAMETER_INVALID, details)
    await context.journal.write(Change(context.account, new_callbacks=[callback]))


def _completed(identity: NumberIdentity, field: str, value: dict[str, Any]) -> dict[str, Any]:
    """Return a value with the description of the number that it lacks."""
    if field in _OF_NUMBER:
        return {"display_phone_number": identity.account, **value}
    return {**envelope.head(identity), **value} if field == _OF_USERS else value
