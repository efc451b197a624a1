"""Translation of the Cloud API's webhooks: messages of recipients and statuses, into the forms of v1."""

from __future__ import annotations

import base64
import binascii
import dataclasses
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

import msgspec

from coreapp.upstream import outcomes
from coreapp.upstream.outcomes import CloudError
from coreapp.webhook import inbound
from coreapp.webhook.inbound import Inbound, InboundSystem
from tidings.storage.business.messages import Status
from tidings.wire import addresses, codes, media_objects
from tidings.wire.addresses import WaId
from tidings.wire.cloud import system_notices
from tidings.wire.decoding import UNREADABLE

_decode = msgspec.json.Decoder(dict[str, Any]).decode
_encode = msgspec.json.Encoder().encode
_FAILURES = (*UNREADABLE, ValueError, TypeError, KeyError)

CHANGED_NUMBER: Literal["user_changed_number"] = system_notices.CHANGED_NUMBER
# Types without a form in v1.
_DROPPED = frozenset({"edit", "revoke", "request_welcome"})
_SAME = frozenset({"text", "location", "contacts", "button", "interactive", "order"})
_FILES = frozenset(media_objects.KINDS) - {"voice"}
_EPHEMERAL = "ephemeral"
_REACHED = {"sent": Status.SENT, "delivered": Status.DELIVERED, "read": Status.READ, "failed": Status.FAILED}
# Model of conversation-based pricing, the only one that clients of v1 know.
_PRICING_MODEL = "CBP"
# Ids of files in the Cloud API.
_MEDIA_ID = re.compile(r"[0-9A-Za-z_-]{1,64}", re.ASCII)
_NO_KEY = base64.b64encode(bytes(64)).decode()


class Unusable(Exception):
    """The event has no form in v1, or is malformed. It is counted and dropped. `str()` is the reason, for the log."""


class UpstreamSystem(InboundSystem):
    """Notice of a recipient's new number, under its names in early and in late releases of v1."""

    wa_id: WaId | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class PostedMessage:
    """Message of a recipient. Ids that it names are those of the Cloud API until `translated` is called."""

    wamid: str
    sender: str  # number, or the one that stands for it
    timestamp: int  # Unix seconds
    fields: Mapping[str, Any] = dataclasses.field(repr=False)
    name: str = ""  # name in the sender's profile; empty without one
    user_id: str = ""  # business-scoped id of a sender for whom `sender` stands; empty where it is their number
    # Number that stands for the user with their new id already, in a notice about that; empty if `sender` may.
    new_number: str = ""

    @property
    def new_user_id(self) -> str:
        """Return the id that a user for whom `sender` stands has got, in a notice about that; empty for none."""
        return system_notices.ids_of(self.fields.get("system"), self.user_id)[1] if self.user_id else ""

    @property
    def named(self) -> Sequence[str]:
        """Return the Cloud API's ids of the messages that this one names."""
        return [wamid for wamid in (_text(self._context, "id"), _text(self._reaction, "message_id")) if wamid]

    @property
    def _context(self) -> Mapping[str, Any]:
        return _mapping(self.fields.get("context"))

    @property
    def _reaction(self) -> Mapping[str, Any]:
        return _mapping(self.fields.get("reaction"))

    def content(self, own_ids: Mapping[str, str], derive: Callable[[str], str]) -> bytes:
        """Return the content in the form in which the network's recipients send it. Raises `Unusable`.

        own_ids: our own ids of the messages that it names, as far as they are known
        derive: returns our own id of a recipient's message
        """
        kind = str(self.fields.get("type"))
        if kind in _DROPPED:
            raise Unusable(f"messages of type {kind} have no form in v1")
        content = _mapping(self.fields.get(kind))
        parts: dict[str, Any] = {"profile": {"name": self.name}}
        context = self._translated_context(own_ids, derive)
        if context:
            parts["context"] = context
        if isinstance(self.fields.get("referral"), dict):
            parts["referral"] = self.fields["referral"]
        if kind in _SAME:
            return _encode({"type": kind, kind: self.fields.get(kind), **parts})
        if kind == "reaction":
            target = _text(content, "message_id")
            reaction = {"message_id": own_ids.get(target) or derive(target), "emoji": content.get("emoji") or ""}
            return _encode({"type": kind, kind: reaction, **parts})
        if kind in _FILES:
            shown = "voice" if kind == "audio" and content.get("voice") is True else kind
            return _encode({"type": shown, shown: _file(content), **parts})
        if self.new_number:
            return _encode({"type": kind, kind: self._changed_number(content), **parts})
        if kind == "system" and content.get("type") == CHANGED_NUMBER:
            return _encode({"type": kind, kind: _system(content), **parts})
        if kind == "system":
            raise Unusable(f"system messages of type {str(content.get('type'))[:40]} have no form in v1")
        if _mapping(self.fields.get("unsupported")).get("type") == _EPHEMERAL:
            return _encode({"type": _EPHEMERAL})
        return _encode({"type": kind, **parts})

    def _changed_number(self, content: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the notice that another number stands for the user."""
        body = str(content.get("body") or "").replace(self.user_id, self.sender)
        body = body.replace(self.new_user_id, self.new_number)
        return {"type": CHANGED_NUMBER, "new_wa_id": self.new_number, "body": body}

    def _translated_context(self, own_ids: Mapping[str, str], derive: Callable[[str], str]) -> Mapping[str, Any]:
        found = self._context
        context = {name: found[name] for name in ("forwarded", "frequently_forwarded") if found.get(name) is True}
        if isinstance(found.get("referred_product"), dict):
            context["referred_product"] = found["referred_product"]
        wamid, author = _text(found, "id"), _text(found, "from")
        if self.user_id and wamid and author == _text(self.fields, "from"):
            # Of the sender, unless the message is known to be another one's. The number may be hidden in both places.
            author = self.sender if own_ids.get(wamid, derive(wamid)) == derive(wamid) else ""
        own = own_ids.get(wamid) or (derive(wamid) if wamid and author == self.sender else "")
        if own:
            # The id of an own message that is no longer known is left out.
            context |= {"id": own, "from": author} if author else {"id": own}
        return context

    def shown(self, content: bytes) -> Inbound:
        """Return what webhooks show of a content that `content` returned."""
        message = inbound.read(content)
        if isinstance(message.content, InboundSystem):
            number = message.content.new_wa_id
            system = UpstreamSystem(CHANGED_NUMBER, number, message.content.body, wa_id=number)
            return dataclasses.replace(message, content=system)
        error = _error_of(self.fields)
        if error is None:
            return message
        if isinstance(message.content, inbound.InboundMedia):
            return dataclasses.replace(message, error=(codes.MEDIA_DOWNLOAD, error.details), pointer=None)
        if message.kind == inbound.UNKNOWN:
            return dataclasses.replace(message, error=(codes.TYPE_UNSUPPORTED, error.details))
        return message


@dataclasses.dataclass(frozen=True, slots=True)
class PostedStatus:
    """Status of a message of the business."""

    wamid: str
    reached: Status
    timestamp: int  # Unix seconds
    own_id: str = ""  # our id, as the post named it; empty where the Cloud API does not return it
    error: tuple[int, str] | None = None  # code, of v1 or from 130000 on of the Cloud API, and details, for `FAILED`
    code: int = 0  # the Cloud API's code of the error; 0 for none
    pricing: Mapping[str, Any] = dataclasses.field(default_factory=dict)  # conversation and pricing, as v1 shows them


def read_message(body: bytes, name: str = "", *, stand_in: str = "", user_id: str = "") -> PostedMessage:
    """Parse one of `value.messages`. Raises `Unusable`.

    name: name in the sender's profile; empty without one
    stand_in: number that stands for the sender, with their business-scoped id; empty for the sender's own number
    """
    try:
        fields = _decode(body)
        wamid, timestamp = _id(fields["id"]), _time(fields["timestamp"])
        sender = stand_in or str(fields["from"])
    except _FAILURES as error:
        raise Unusable(f"malformed message: {error!r}"[:200]) from None
    if not addresses.is_wa_id(sender):
        raise Unusable("the sender has no number")
    return PostedMessage(wamid, sender, timestamp, fields, name, user_id)


def read_status(body: bytes) -> PostedStatus:
    """Parse one of `value.statuses`. Raises `Unusable`."""
    try:
        fields = _decode(body)
        wamid, timestamp, name = _id(fields["id"]), _time(fields["timestamp"]), str(fields["status"])
    except _FAILURES as failure:
        raise Unusable(f"malformed status: {failure!r}"[:200]) from None
    reached = _REACHED.get(name)
    if reached is None:
        raise Unusable(f"the status {name[:40]} has no form in v1")
    error, code = None, 0
    if reached is Status.FAILED:
        found = _error_of(fields) or CloudError(0, "the Cloud API gives no reason")
        refused = outcomes.refused(found)
        error, code = (refused.code, refused.details), found.code
    own = fields.get("biz_opaque_callback_data")
    return PostedStatus(
        wamid,
        reached,
        timestamp,
        own if isinstance(own, str) and own.isascii() and len(own) <= inbound.MAX_ID else "",
        error,
        code,
        _pricing(fields),
    )


def read_error(body: bytes) -> tuple[int, str]:
    """Parse one of `value.errors`, which concern no message. Returns the code of v1 and the details. Raises
    `Unusable`.
    """
    try:
        found = outcomes.refused(msgspec.convert(_decode(body), CloudError))
    except _FAILURES as error:
        raise Unusable(f"malformed error: {error!r}"[:200]) from None
    return found.code, found.details


def _time(found: Any) -> int:
    """Return a timestamp, Unix seconds. Raises `ValueError` and `TypeError`."""
    seconds = int(found)
    if not 0 <= seconds < 10_000_000_000:
        raise ValueError("the timestamp is out of range")
    return seconds


def _pricing(fields: Mapping[str, Any]) -> Mapping[str, Any]:
    found: dict[str, Any] = {}
    conversation, pricing = fields.get("conversation"), fields.get("pricing")
    if isinstance(conversation, dict):
        expires = str(conversation.get("expiration_timestamp") or "")
        found["conversation"] = conversation | (
            {"expiration_timestamp": int(expires)}
            if expires.isascii() and expires.isdigit() and len(expires) <= 12
            else {}
        )
    if isinstance(pricing, dict):
        found["pricing"] = pricing | {"pricing_model": _PRICING_MODEL}
    return found


def _error_of(fields: Mapping[str, Any]) -> CloudError | None:
    errors = fields.get("errors")
    first = errors[0] if isinstance(errors, list) and errors else None
    if not isinstance(first, dict):
        return None
    try:
        # Webhooks before v16 have only the title.
        return msgspec.convert({"message": first.get("title") or "", **first}, CloudError)
    except msgspec.ValidationError:
        return None


def _file(content: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a file in the form of the network. Its pointer has the Cloud API's id, and no key and no size: nothing is
    encrypted.
    """
    media_id, digest = str(content.get("id") or ""), _digest(content.get("sha256"))
    described = {name: content[name] for name in ("caption", "filename") if content.get(name)}
    described |= {"mime_type": content.get("mime_type") or "", "sha256": content.get("sha256") or ""}
    if _MEDIA_ID.fullmatch(media_id):
        described |= {"blob": media_id, "key": _NO_KEY, "digest": base64.b64encode(digest).decode(), "size": 0}
    return described


def _digest(sha256: Any) -> bytes:
    """Return a hash in base64, or in hexadecimal, as bytes; zeros for none."""
    text = sha256 if isinstance(sha256, str) else ""
    try:
        found = bytes.fromhex(text) if len(text) == 64 else base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        found = b""
    return found if len(found) == 32 else bytes(32)


def _system(content: Mapping[str, Any]) -> Mapping[str, Any]:
    number = content.get("wa_id") or content.get("new_wa_id")
    return {"type": CHANGED_NUMBER, "new_wa_id": number, "body": content.get("body") or ""}


def _id(given: Any) -> str:
    """Return the id of a message. Raises `ValueError`."""
    if not isinstance(given, str) or not 0 < len(given) <= 255 or not given.isascii() or not given.isprintable():
        raise ValueError("id is not that of a message")
    return given


def _text(fields: Mapping[str, Any], name: str) -> str:
    value = fields.get(name)
    return value if isinstance(value, str) else ""


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}
