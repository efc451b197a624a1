"""The JSON bodies that go to the webhook: one message or one status in each."""

from __future__ import annotations

from typing import Any

import msgspec

from coreapp.conversations import Conversation
from coreapp.webhook.inbound import Inbound
from tidings.storage.business.messages import Status
from tidings.wire import codes

_encode = msgspec.json.encode

_NAMES = {Status.SENT: "sent", Status.DELIVERED: "delivered", Status.READ: "read", Status.FAILED: "failed"}


class DescribedIdentity(msgspec.Struct, frozen=True, gc=False):
    """A sender's identity. created_timestamp: Unix milliseconds; hash: base64."""

    acknowledged: bool
    created_timestamp: int
    hash: str


def status(
    message_id: str,
    recipient: str,
    reached: Status,
    timestamp: int,
    error: tuple[int, str] | None = None,
    conversation: Conversation | None = None,
    group_id: str = "",
) -> bytes:
    """A `statuses` body. timestamp: Unix seconds; error: code and details, for `FAILED`; group_id: of a message to a
    group, when the recipient is one participant of it."""
    entry = _status(message_id, recipient, _NAMES[reached], timestamp)
    if group_id:
        entry["group_id"] = group_id
    if conversation is not None:
        described: dict[str, Any] = {"id": conversation.id}
        if reached is Status.SENT:
            described["expiration_timestamp"] = conversation.expires_at
        described["origin"] = {"type": conversation.origin}
        entry["conversation"] = described
        entry["pricing"] = {"pricing_model": "CBP", "billable": True, "category": conversation.origin}
    if error is not None:
        entry["errors"] = [_error(*error)]
    return _encode({"statuses": [entry]})


def deleted(message_id: str, sender: str, timestamp: int) -> bytes:
    """A `statuses` body: the recipient has withdrawn a message of theirs. timestamp: Unix seconds."""
    return _encode({"statuses": [_status(message_id, sender, "deleted", timestamp)]})


def inbound(
    message_id: str,
    sender: str,
    timestamp: int,
    message: Inbound,
    error: tuple[int, str] | None = None,
    identity: DescribedIdentity | None = None,
    group_id: str = "",
) -> bytes:
    """A `messages` body. timestamp: Unix seconds; error: code and details of what went wrong since it was read;
    group_id: of the group that it was sent to, or is about."""
    entry: dict[str, Any] = {"from": sender, "id": message_id, "timestamp": str(timestamp), "type": message.kind}
    if group_id:
        entry["group_id"] = group_id
    if message.content is not None:
        entry[message.kind] = message.content
    if message.context is not None:
        entry["context"] = message.context
    if message.referral is not None:
        entry["referral"] = message.referral
    if identity is not None:
        entry["identity"] = identity
    wrong = error or message.error
    if wrong is not None:
        entry["errors"] = [_error(*wrong)]
    return _encode({"contacts": [{"profile": {"name": message.name or sender}, "wa_id": sender}], "messages": [entry]})


def identity_changed(message_id: str, peer: str, identity: DescribedIdentity) -> bytes:
    """A `messages` body of type `system`: a recipient has new keys, and so may be somebody else."""
    entry = {
        "from": peer,
        "id": message_id,
        "timestamp": str(identity.created_timestamp // 1000),
        "type": "system",
        "system": {
            "type": "user_identity_changed",
            "body": f"User {peer} may have changed: the keys are new",
            "identity": identity.hash,
        },
        "identity": identity,
    }
    return _encode({"contacts": [{"profile": {"name": peer}, "wa_id": peer}], "messages": [entry]})


def _error(code: int, details: str) -> dict[str, Any]:
    return {"code": code, "title": codes.find(code).title, "details": details}


def errors(code: int, details: str) -> bytes:
    """An `errors` body, about something that no message or status tells of."""
    return _encode({"errors": [_error(code, details)]})


def not_decrypted(sender: str, count: int, since: int) -> bytes:
    """An `errors` body about so many messages of one sender. since: when the first of them came, Unix seconds."""
    what = "1 more message" if count == 1 else f"{count} more messages"
    details = f"{what} from {sender}, since {since}, could not be decrypted"
    return errors(codes.MESSAGE_FAILED, details)


def contacts(found: list[dict[str, str]]) -> bytes:
    """What became of contacts that were asked about with `no_wait`."""
    return _encode({"contacts": found})


def _status(message_id: str, peer: str, name: str, timestamp: int) -> dict[str, Any]:
    return {
        "id": message_id,
        "recipient_id": peer,
        "status": name,
        "timestamp": str(timestamp),
        "type": "message",
        "message": {"recipient_id": peer},
    }


def garbage_report(kind: str, deleted: int | None, node: str) -> bytes:
    """A `services` body. kind: `message` or `media`; deleted: `None` when it failed."""
    if deleted is None:
        result: dict[str, Any] = {
            "status": "failed",
            "node": node,
            "errors": [_error(codes.INTERNAL_ERROR, "the log has the reason")],
        }
    else:
        counted = "messages_deleted" if kind == "message" else "items_deleted"
        result = {counted: deleted, "status": "complete", "node": node}
    return _encode({"services": [{kind: {"gc": result}}]})
