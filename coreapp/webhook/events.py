"""Callbacks that report an event: one in the format of v1 and one in that of the Cloud API, each where it is wanted.

The callback of the Cloud API is a separate row, translated when the event is stored (docs/decisions/0066).
"""

from __future__ import annotations

import functools
import hashlib
import logging
from collections.abc import Callable, Mapping
from typing import Any

from coreapp.cloud_subscription import MESSAGES, CloudSubscription
from coreapp.context import ShardContext
from coreapp.webhook import bodies
from coreapp.webhook.bodies import DescribedIdentity
from coreapp.webhook.cloud import envelope, messages, statuses, templates
from coreapp.webhook.cloud.statuses import ReportedStatus
from coreapp.webhook.inbound import Inbound, InboundSystem
from tidings.storage.business import callbacks
from tidings.storage.business.callbacks import (
    CLOUD_ACCOUNT,
    CLOUD_ERROR,
    CLOUD_MESSAGE,
    CLOUD_STATUS,
    CLOUD_SUBJECT,
    Callback,
)
from tidings.storage.business.template_events import TemplateEvent
from tidings.wire import addresses, codes

log = logging.getLogger(__name__)

_MAX_SUBJECT = 64  # characters


def cloud_subject(subject: str) -> str:
    """Return the subject of callbacks of the Cloud API about a message: they do not wait for those of v1."""
    named = CLOUD_SUBJECT + subject
    if len(named) <= _MAX_SUBJECT:
        return named
    return CLOUD_SUBJECT + hashlib.blake2b(subject.encode(), digest_size=16).hexdigest()


def inbound(
    context: ShardContext,
    message_id: str,
    sender: str,
    timestamp: int,
    message: Inbound,
    *,
    error: tuple[int, str] | None = None,
    identity: DescribedIdentity | None = None,
    group_id: str = "",
    request_id: str = "",
) -> list[Callback]:
    """Return the callbacks about a message of a recipient.

    timestamp: Unix seconds
    error: code and details of an error since the message was read; None for none
    identity: the sender's identity, for the formats that show it; None to omit it
    group_id: group that it was sent to or is about, which the Cloud API does not report; empty for none
    request_id: id of the request that caused it; empty for none
    """
    config, made = context.config, []
    if config.posts_v1 and (config.preferences().number_changes or not isinstance(message.content, InboundSystem)):
        shown = identity if config.preferences().security else None
        body = bodies.inbound(message_id, sender, timestamp, message, error, shown, group_id)
        made.append(context.callback(message_id, "inbound_message", body, recipient=sender, request_id=request_id))
    cloud = _of_messages(context)
    if cloud is not None and not group_id:
        body = messages.inbound(
            cloud.identity,
            message_id,
            sender,
            timestamp,
            message,
            error,
            file_url=_file_url(context, cloud),
            show=cloud.show,
            identity_hash=identity.hash if identity is not None and cloud.shows_identity else "",
        )
        callback = _cloud(context, message_id, CLOUD_MESSAGE, body, recipient=sender, request_id=request_id)
        named = (sender, message.content.new_wa_id) if isinstance(message.content, InboundSystem) else (sender,)
        callback.users = cloud.to_store(*named)
        made.append(callback)
    return made


def undecrypted(
    context: ShardContext, subject: str, sender: str, details: str, *, request_id: str = ""
) -> list[Callback]:
    """Return the callbacks about messages that could not be decrypted."""
    made = []
    if context.config.posts_v1:
        body = bodies.errors(codes.MESSAGE_FAILED, details)
        made.append(context.callback(subject, "error", body, recipient=sender, request_id=request_id))
    cloud = _of_messages(context)
    if cloud is not None:
        body = messages.lost(cloud.identity, codes.MESSAGE_FAILED, details)
        made.append(_cloud(context, subject, CLOUD_ERROR, body, recipient=sender, request_id=request_id))
    return made


def cloud_status(context: ShardContext, status: ReportedStatus, *, request_id: str, at: int) -> Callback | None:
    """Return the callback of the Cloud API about a status; None where it is not reported.

    at: time of the report, Unix milliseconds
    """
    cloud = _of_messages(context)
    if cloud is None or addresses.names_group(status.recipient) or not statuses.is_reported(status):
        return None
    made = _cloud(
        context,
        status.message_id,
        CLOUD_STATUS,
        statuses.body(cloud.identity, status, cloud.version, cloud.show(status.recipient)),
        recipient=status.recipient,
        request_id=request_id,
        at=at,
    )
    made.event = callbacks.status_event(cloud_subject(status.message_id), status.recipient, int(status.reached))
    made.users = cloud.to_store(status.recipient)
    return made


def template_change(context: ShardContext, event: TemplateEvent) -> Callback | None:
    """Return the callback of the Cloud API about a change of a template; None where it is not reported."""
    field = templates.FIELDS.get(event.kind)
    if field is None:
        # A later release may know more kinds.
        log.warning("templates.unknown_event", extra={"kind": event.kind, "event": event.id})
        return None
    return account_change(
        context,
        field,
        templates.value(event),
        event.created_at // 1000,
        subject=f"template:{templates.id_of(event)}",
        event=event.id,
    )


def account_change(
    context: ShardContext, field: str, value: Mapping[str, Any], seconds: int, *, subject: str, event: str
) -> Callback | None:
    """Return the callback of the Cloud API about a change of an account; None where its field is not subscribed to.

    seconds: Unix time of the change
    event: event id
    """
    cloud = context.config.cloud
    if cloud is None or not cloud.wants(field):
        return None
    body = envelope.of_account(cloud.identity, field, value, seconds)
    made = _cloud(context, subject, CLOUD_ACCOUNT, body, recipient="", request_id="")
    made.event = event
    return made


def wants_cloud_messages(context: ShardContext) -> bool:
    """Return whether messages and statuses are posted in the format of the Cloud API."""
    return _of_messages(context) is not None


def posts_number_changes(context: ShardContext) -> bool:
    """Return whether v1 or the Cloud API reports the new number of a recipient."""
    return context.config.preferences().number_changes or wants_cloud_messages(context)


def _of_messages(context: ShardContext) -> CloudSubscription | None:
    cloud = context.config.cloud
    return cloud if cloud is not None and cloud.wants(MESSAGES) else None


def _file_url(context: ShardContext, cloud: CloudSubscription) -> Callable[[str], str] | None:
    """Return the function that makes the URL of a file by its id; None while the URL of the API is not known."""
    if not cloud.api_url:
        return None
    return functools.partial(context.media_links.url, cloud.api_url, cloud.identity.account)


def _cloud(
    context: ShardContext,
    subject: str,
    kind: str,
    body: bytes,
    *,
    recipient: str,
    request_id: str,
    at: int | None = None,
) -> Callback:
    made = context.callback(cloud_subject(subject), kind, body, recipient=recipient, request_id=request_id, at=at)
    # `callback_persist` is a setting of v1.
    made.volatile = False
    return made
