"""Webhooks of the Cloud API that a test requests, because only WhatsApp decides about their events."""

from __future__ import annotations

import secrets
from typing import Annotated, Any

import msgspec
import pydantic

from tidings.wire import core
from webapp.api.cloud import callbacks
from webapp.coreapps.interfaces import PrimaryCoreappOfNumber

# A test sends messages as a recipient.
FIELDS = tuple(field for field in callbacks.FIELDS if field != "messages")


def _check_field(field: str) -> str:
    if field not in FIELDS:
        raise ValueError(f"should be one of {', '.join(FIELDS)}")
    return field


class WebhookRequest(pydantic.BaseModel):
    """Body of `POST /tidings/webhooks`."""

    model_config = pydantic.ConfigDict(extra="forbid")

    field: Annotated[str, pydantic.AfterValidator(_check_field)]
    value: dict[str, Any]

    async def queue(self, account: str, owner: PrimaryCoreappOfNumber) -> str:
        """Queue the webhook of a number. Returns its event id. Raises the errors of the Coreapp link."""
        value, event = msgspec.json.encode(self.value), f"evt_{secrets.token_hex(16)}"
        await owner.call_primary(
            lambda n: core.QueueWebhook(n, account, self.field, value, event),
            core.Done,
            version=core.QUEUES_WEBHOOKS,
        )
        return event
