"""Messages of recipients as the Cloud API's webhooks show them."""

from __future__ import annotations

import base64
import re
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from coreapp.cloud_users import ShownUser
from coreapp.webhook.cloud import contacts, envelope, errors
from coreapp.webhook.inbound import (
    Context,
    Inbound,
    InboundButton,
    InboundMedia,
    InboundSystem,
    InteractiveButton,
    InteractiveFlow,
    InteractiveList,
    Reaction,
)
from tidings.wire import ids
from tidings.wire.cloud import media_ids, wamid
from tidings.wire.cloud.codes import MEDIA_DOWNLOAD
from tidings.wire.cloud.identity import NumberIdentity

CHANGED_USER_ID = "user_changed_user_id"
_HEX = re.compile("[0-9a-f]{64}")
_UNSUPPORTED = errors.unsupported()


def inbound(
    identity: NumberIdentity,
    message_id: str,
    sender: str,
    timestamp: int,
    message: Inbound,
    error: tuple[int, str] | None = None,
    *,
    file_url: Callable[[str], str] | None = None,
    identity_hash: str = "",
    show: Callable[[str], ShownUser] | None = None,
) -> bytes:
    """Return the body of a webhook about a message of a recipient.

    timestamp: Unix seconds
    error: code and details of an error since the message was read; `None` for none
    file_url: makes the URL of a file by its id in the Cloud API; `None` to leave it out
    identity_hash: hash of the sender's identity; empty to leave it out
    show: returns a user by number; `None` while users have no ids
    """
    show = show or ShownUser
    user = show(sender)
    entry: dict[str, Any] = {}
    if message.context is not None and (context := _context(identity, user.number, message.context)):
        entry["context"] = context
    if message.referral is not None:
        entry["referral"] = message.referral
    if user.number:
        entry["from"] = user.number
    if user.user_id:
        entry["from_user_id"] = user.user_id
    entry["id"] = wamid.encode(message_id, user.number, by_recipient=True)
    entry["timestamp"] = str(timestamp)
    if isinstance(message.content, InboundSystem):
        entry["type"] = "system"
        entry["system"] = _system(user, show(message.content.new_wa_id), message.content, message.name)
        return envelope.of_messages(identity, {"messages": [entry]})
    kind, parts = _content(identity, user.number, message, error or message.error, file_url)
    entry["type"] = kind
    entry.update(parts)
    contact = dict(contacts.describe(user, message.name))
    if identity_hash:
        contact["identity_key_hash"] = identity_hash
    return envelope.of_messages(identity, {"contacts": [contact], "messages": [entry]})


def _content(
    identity: NumberIdentity,
    sender: str,
    message: Inbound,
    error: tuple[int, str] | None,
    file_url: Callable[[str], str] | None,
) -> tuple[str, Mapping[str, Any]]:
    """Return the type of a message, and its fields that depend on the type.

    sender: number of the sender; empty for one that is not visible
    """
    content = message.content
    if isinstance(content, InboundMedia):
        if content.id is None:
            # Without its file the message cannot be shown.
            details = error[1] if error is not None else "the file was not downloaded"
            return "unsupported", {
                "errors": [errors.describe(MEDIA_DOWNLOAD, details)],
                "unsupported": {"type": message.kind},
            }
        kind = "audio" if message.kind == "voice" else message.kind
        return kind, {kind: _media(message.kind, content, content.id, file_url)}
    if isinstance(content, Reaction):
        reaction = {"message_id": _reference(identity, sender, content.message_id)}
        return "reaction", {"reaction": reaction | ({"emoji": content.emoji} if content.emoji else {})}
    if isinstance(content, InboundButton):
        return "button", {"button": {"payload": content.payload or content.text, "text": content.text}}
    if isinstance(content, InteractiveButton | InteractiveList | InteractiveFlow):
        return "interactive", {"interactive": content}
    describe = _DESCRIBED.get(message.kind)
    if content is None or describe is None:
        return "unsupported", _UNSUPPORTED
    return message.kind, {message.kind: describe(content)}


def _system(before: ShownUser, after: ShownUser, content: InboundSystem, name: str) -> Mapping[str, Any]:
    """Return the notice of a changed number: with the new number if both are visible, else with the new id.

    name: name in the profile; empty for none
    """
    if before.number and after.number:
        body = content.body or f"User {before.number} changed from {before.number} to {after.number}"
        new_id = {"user_id": after.user_id} if after.user_id else {}
        return {"body": body, "wa_id": after.number, **new_id, "type": content.type}
    body = f"User {name or before.name} changed from {before.user_id} to {after.user_id}"
    return {"body": body, "user_id": after.user_id, "type": CHANGED_USER_ID}


def _contacts(cards: Any) -> Any:
    """Return contact cards without messengers, which the Cloud API does not have."""
    found = msgspec.to_builtins(cards)
    return [{name: value for name, value in card.items() if name != "ims"} for card in found]


def _same(content: Any) -> Any:
    return content


_DESCRIBED: Mapping[str, Callable[[Any], Any]] = {
    "text": _same,
    "location": _same,
    "order": _same,
    "contacts": _contacts,
}


def _media(kind: str, content: InboundMedia, media_id: str, file_url: Callable[[str], str] | None) -> Mapping[str, Any]:
    """Return a file that was downloaded."""
    described: dict[str, Any] = {}
    if content.caption:
        described["caption"] = content.caption
    if content.filename and kind == "document":
        described["filename"] = content.filename
    described["mime_type"] = content.mime_type
    described["sha256"] = _base64(content.sha256)
    cloud_id = described["id"] = media_ids.encode(media_id)
    if file_url is not None:
        described["url"] = file_url(cloud_id)
    if kind in ("audio", "voice"):
        described["voice"] = kind == "voice"
    elif kind == "sticker":
        described["animated"] = False
    return described


def _base64(digest: str) -> str:
    """Return a hash in base64; v1 and devices write it in hexadecimal."""
    return base64.b64encode(bytes.fromhex(digest)).decode() if _HEX.fullmatch(digest) else digest


def _context(identity: NumberIdentity, sender: str, context: Context) -> Mapping[str, Any]:
    """Return the message that a message refers to, and its author; groups and mentions are left out."""
    described: dict[str, Any] = {}
    if context.forwarded:
        described["forwarded"] = True
    if context.frequently_forwarded:
        described["frequently_forwarded"] = True
    if context.id is not None:
        author = identity.account if _is_ours(context.id) else sender
        described |= {"from": author} if author else {}
        described["id"] = _reference(identity, sender, context.id)
    if context.referred_product is not None:
        described.setdefault("from", identity.account)
        described["referred_product"] = context.referred_product
    return described


def _reference(identity: NumberIdentity, sender: str, message_id: str) -> str:
    """Return the Cloud API's id of a message between the business and `sender`."""
    return wamid.encode(message_id, sender, by_recipient=not _is_ours(message_id))


def _is_ours(message_id: str) -> bool:
    """Return whether the business sent a message."""
    return ids.made_at(message_id) is not None


def lost(identity: NumberIdentity, code: int, details: str) -> bytes:
    """Return the body of a webhook about an error that no message or status reports.

    code: our own code
    """
    return envelope.of_messages(identity, {"errors": [errors.of_own(code, details)]})
