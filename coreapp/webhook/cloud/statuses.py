"""Statuses of messages as the Cloud API's webhooks show them."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Mapping
from typing import Any

from coreapp.cloud_users import ShownUser
from coreapp.conversations import DAY, TEMPLATES
from coreapp.webhook.cloud import contacts, envelope, errors
from tidings.storage.business.messages import Status
from tidings.wire import codes
from tidings.wire.cloud import wamid
from tidings.wire.cloud.identity import NumberIdentity

_NAMES = {Status.SENT: "sent", Status.DELIVERED: "delivered", Status.READ: "read", Status.FAILED: "failed"}
_SERVICE, _UTILITY = "service", "utility"
LAST_WITH_CONVERSATIONS = 23  # major version


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ReportedStatus:
    """Status that a message has reached."""

    message_id: str
    recipient: str
    reached: Status
    timestamp: int  # Unix seconds
    kind: str  # type of the message
    category: str  # category of its template; empty where it is not known
    callback_data: str | None  # text that the business gave with the message; None or empty for none
    error: tuple[int, str] | None = None  # our own code, and details, for `FAILED`


def is_reported(status: ReportedStatus) -> bool:
    """Return whether the Cloud API reports a status: an expired message has none, and a reaction is only sent."""
    if status.kind == "reaction" and status.reached in (Status.DELIVERED, Status.READ):
        return False
    return status.error is None or status.error[0] != codes.EXPIRED


def body(identity: NumberIdentity, status: ReportedStatus, version: int, user: ShownUser | None = None) -> bytes:
    """Return the body of a webhook about a status.

    version: major version of the webhooks
    user: the recipient as webhooks show them; None for a number without an id
    """
    user = user or ShownUser(status.recipient)
    entry: dict[str, Any] = {
        "id": wamid.encode(status.message_id, user.number),
        "status": _NAMES[status.reached],
        "timestamp": str(status.timestamp),
    }
    if user.number:
        entry["recipient_id"] = user.number
    if user.user_id:
        entry["recipient_user_id"] = user.user_id
    if status.callback_data:
        entry["biz_opaque_callback_data"] = status.callback_data
    if status.reached in (Status.SENT, Status.DELIVERED):
        if version <= LAST_WITH_CONVERSATIONS:
            entry["conversation"] = _conversation(status)
        entry["pricing"] = _pricing(status)
    if status.error is not None:
        entry["errors"] = [errors.of_own(*status.error, kind=status.kind)]
    parts: dict[str, Any] = {}
    if user.user_id and status.reached is not Status.FAILED:
        parts["contacts"] = [contacts.describe(user)]
    return envelope.of_messages(identity, {**parts, "statuses": [entry]})


def category_of(status: ReportedStatus) -> str:
    """Return the category that a message is priced by."""
    return (status.category.lower() or _UTILITY) if status.kind in TEMPLATES else _SERVICE


def _conversation(status: ReportedStatus) -> Mapping[str, Any]:
    """Return the conversation, which has a new id for each message."""
    name = hashlib.blake2b(f"cloud conversation {status.message_id}".encode(), digest_size=16).hexdigest()
    described: dict[str, Any] = {"id": name}
    if status.reached is Status.SENT:
        described["expiration_timestamp"] = str(status.timestamp + DAY)
    described["origin"] = {"type": category_of(status)}
    return described


def _pricing(status: ReportedStatus) -> Mapping[str, Any]:
    is_free = status.kind not in TEMPLATES
    return {
        "billable": not is_free,
        "pricing_model": "PMP",
        "type": "free_customer_service" if is_free else "regular",
        "category": category_of(status),
    }
