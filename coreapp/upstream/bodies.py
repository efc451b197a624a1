"""Translation of a message as v1 accepted it into the body of `POST /P/messages` of the Cloud API."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from tidings.wire import codes, media_objects
from tidings.wire.decoding import UNREADABLE

_decode = msgspec.json.Decoder(dict[str, Any]).decode
_encode = msgspec.json.Encoder().encode

# Fields that v1 has, or that we add, and the Cloud API does not have.
_OF_TEMPLATES = ("namespace", "filled")
_OF_CONTACTS = ("ims",)
OF_POINTERS = ("blob", "key", "digest", "size", "mime_type", "sha256", "provider", "source")
TEMPLATE, HSM, REACTION = "template", "hsm", "reaction"


class Untranslatable(Exception):
    """The message cannot be sent through the Cloud API. It fails with this code and these details."""

    def __init__(self, code: int, details: str) -> None:
        super().__init__(details)
        self.code = code
        self.details = details


class OutboundMessage:
    """One message to send: the ids that it names, which are our own, and its body with those of the Cloud API."""

    def __init__(self, content: bytes) -> None:
        """Parse the content of a job. Raises `Untranslatable`."""
        try:
            fields = _decode(content)
            self.kind = str(fields["type"])
            self._object: Any = fields[self.kind]
        except (*UNREADABLE, KeyError) as error:
            raise Untranslatable(codes.MESSAGE_FAILED, "the stored message cannot be read") from error
        context = fields.get("context")
        # Our own id of the message that this one replies to; empty for none.
        self.replied_to = str(context.get("id") or "") if isinstance(context, dict) else ""

    @property
    def target(self) -> str:
        """Our own id of the message that a reaction is about; empty for other messages."""
        return str(self._object.get("message_id") or "") if self.kind == REACTION else ""

    @property
    def named(self) -> Sequence[str]:
        """Return our own ids of the messages that this one names."""
        return [message_id for message_id in (self.replied_to, self.target) if message_id]

    def body(self, to: str, message_id: str, *, wamids: Mapping[str, str], user_id: str = "") -> bytes:
        """Return the body of the post. Raises `Untranslatable`.

        Files of the message are links, which the Cloud API fetches itself, or pointers whose blob is the id of an
        uploaded file.

        message_id: our own id, which each status of the message returns
        wamids: ids of the Cloud API by our own, for those of `named` that are known
        user_id: business-scoped id of the user that `to` stands for; empty for a telephone number
        """
        kind, content = self._translated(wamids)
        body: dict[str, Any] = {
            "messaging_product": "whatsapp",
            "recipient_type": "individual",
            **({"recipient": user_id} if user_id else {"to": to}),
            "type": kind,
            kind: content,
        }
        if self.replied_to in wamids and self.kind != REACTION:
            # A reply to a message whose id is no longer known is sent without the reference.
            body["context"] = {"message_id": wamids[self.replied_to]}
        body["biz_opaque_callback_data"] = message_id
        return _encode(body)

    def _translated(self, wamids: Mapping[str, str]) -> tuple[str, Any]:
        """Return the type and the content in the Cloud API's form."""
        if self.kind == HSM:
            return TEMPLATE, _template_of(self._object)
        if self.kind == REACTION:
            target = wamids.get(self.target)
            if target is None:
                raise Untranslatable(codes.PARAMETER_INVALID, "reaction.message_id: the message is not known any more")
            return REACTION, {"message_id": target, "emoji": self._object.get("emoji") or ""}
        if self.kind == "contacts":
            return self.kind, [_without(card, _OF_CONTACTS) for card in self._object]
        for _, _, media in media_objects.find(self.kind, self._object):
            blob = media.get("blob")
            for name in OF_POINTERS:
                media.pop(name, None)
            if blob is not None:
                media["id"] = blob
        if self.kind == TEMPLATE:
            return TEMPLATE, _without(self._object, _OF_TEMPLATES)
        return self.kind, self._object


def mark_read(wamid: str) -> bytes:
    """Return the body of a post that marks a message, and those before it, as read."""
    return _encode({"messaging_product": "whatsapp", "status": "read", "message_id": wamid})


def _without(fields: Mapping[str, Any], names: Sequence[str]) -> Mapping[str, Any]:
    return {name: value for name, value in fields.items() if name not in names}


def _template_of(hsm: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the template message that is the same as a message of the old form."""
    language = hsm["language"]
    described: dict[str, Any] = {
        "name": hsm["element_name"],
        # The policy `fallback` of old clients is unknown to the Cloud API.
        "language": {"policy": "deterministic", "code": language["code"]},
    }
    parameters = [_parameter_of(given) for given in hsm.get("localizable_params") or ()]
    if parameters:
        described["components"] = [{"type": "body", "parameters": parameters}]
    return described


def _parameter_of(given: Mapping[str, Any]) -> Mapping[str, Any]:
    default = given["default"]
    currency = given.get("currency")
    if currency:
        amount = {"fallback_value": default, "code": currency["currency_code"], "amount_1000": currency["amount_1000"]}
        return {"type": "currency", "currency": amount}
    if given.get("date_time"):
        return {"type": "date_time", "date_time": {"fallback_value": default}}
    return {"type": "text", "text": default}
