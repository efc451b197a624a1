"""JSON bodies of callbacks, each with one message or one status."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from coreapp.conversations import Conversation
from coreapp.webhook.inbound import Inbound
from tidings.storage.business.messages import Status
from tidings.wire import codes
from tidings.wire.cloud import v1_codes

_encode = msgspec.json.encode

_HEAD, _TAIL = b'{"statuses":[{', b"}]}"
_NAMES = {Status.SENT: "sent", Status.DELIVERED: "delivered", Status.READ: "read", Status.FAILED: "failed"}


class DescribedIdentity(msgspec.Struct, frozen=True, gc=False):
    """A sender's identity."""

    acknowledged: bool
    created_timestamp: int  # Unix milliseconds
    hash: str  # base64


def status(
    message_id: str,
    recipient: str,
    reached: Status,
    timestamp: int,
    error: tuple[int, str] | None = None,
    conversation: Conversation | None = None,
    group_id: str = "",
    priced: Mapping[str, Any] | None = None,
) -> bytes:
    """Return a `statuses` body.

    timestamp: Unix seconds
    error: code and details, for `FAILED`; None otherwise
    group_id: group of a message, if the recipient is one participant of it; empty for none
    priced: conversation and pricing as the real Cloud API names them, in place of `conversation`; None for none
    """
    entry = _status(message_id, recipient, _NAMES[reached], timestamp)
    if group_id:
        entry["group_id"] = group_id
    if priced:
        entry |= priced
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


def is_status(body: bytes) -> bool:
    """Return whether a body is that of a status."""
    return body.startswith(_HEAD)


def joined(found: Sequence[bytes], event_ids: Sequence[str]) -> bytes:
    """Return one `statuses` body with those of several, in order, each with its event id as `event_id`."""
    entries = [
        b'{%s,"event_id":"%s"}' % (body[len(_HEAD) : -len(_TAIL)], event_id.encode())
        for body, event_id in zip(found, event_ids, strict=True)
    ]
    return b'{"statuses":[%s]}' % b",".join(entries)


def deleted(message_id: str, sender: str, timestamp: int) -> bytes:
    """Return a `statuses` body about a message that its recipient revoked.

    timestamp: Unix seconds
    """
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
    """Return a `messages` body.

    timestamp: Unix seconds
    error: code and details of an error since the message was read; None for none
    group_id: group that it was sent to or is about; empty for none
    """
    entry: dict[str, Any] = {"from": sender, "id": message_id, "timestamp": str(timestamp), "type": message.kind}
    if group_id:
        entry["group_id"] = group_id
    if message.content is not None:
        entry[message.kind] = message.content
    if message.context is not None:
        entry["context"] = message.context
    if message.referral is not None:
        entry["referral"] = msgspec.structs.replace(message.referral, media_type=None, ctwa_clid=None)
    if identity is not None:
        entry["identity"] = identity
    wrong = error or message.error
    if wrong is not None:
        entry["errors"] = [_error(*wrong)]
    return _encode({"contacts": [{"profile": {"name": message.name or sender}, "wa_id": sender}], "messages": [entry]})


def identity_changed(message_id: str, peer: str, identity: DescribedIdentity) -> bytes:
    """Return a `messages` body of type `system`: a recipient has new keys and may be another person."""
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
    code = v1_codes.of_failed_message(code)
    return {"code": code, "title": codes.find(code).title, "details": details}


def errors(code: int, details: str) -> bytes:
    """Return an `errors` body about something that no message or status reports."""
    return _encode({"errors": [_error(code, details)]})


def not_decrypted(sender: str, count: int, since: int) -> str:
    """Return the details of an error about `count` undecryptable messages of one sender.

    since: arrival of the first of them, Unix seconds
    """
    what = "1 more message" if count == 1 else f"{count} more messages"
    return f"{what} from {sender}, since {since}, could not be decrypted"


def contacts(found: list[dict[str, str]]) -> bytes:
    """Return the results of contacts that were requested with `no_wait`."""
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
    """Return a `services` body.

    kind: `message` or `media`
    deleted: number of rows or files; None after a failure
    """
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
