"""`POST /{phone-number-id}/messages`: send a message, or mark a received one as read."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

from fastapi import Response

from tidings.storage.business.templates import TemplateRow
from tidings.wire import codes, media_objects
from tidings.wire.cloud import media_ids, wamid
from tidings.wire.cloud.codes import PARAMETER_COUNT, PARAMETER_MISSING, TEMPLATE_MISSING
from webapp.api.cloud import errors, responses, template_ttls
from webapp.api.cloud.calls import CloudCall, text_of
from webapp.api.cloud.limits import NumberSendingLimits, SendingLimits
from webapp.api.cloud.users import CloudUsers, require_usable
from webapp.api.media.service import MediaStore
from webapp.api.messages.cloud_types import CLOUD_MODELS
from webapp.api.messages.hydration import CountMismatch
from webapp.api.messages.schemas import Addressed, TemplateMessage
from webapp.api.messages.service import GROUP, Messages, RequestOrigin, SentMessage, digits
from webapp.api.templates.service import Templates
from webapp.auth.authenticator import NumberLimits
from webapp.http import bodies
from webapp.http.errors import CoreappRefused, InvalidRequest

MAX_CALLBACK_DATA = 512  # characters
_READ = "read"
_TYPING = ("text",)
_NO_SUCH_MESSAGE = "Please check the message ID you have provided."
_OUTGOING = (
    "Message supplied to mark message as read API with message ID: {} is outgoing. Please use an incoming message ID."
)
_PRODUCTS = ("whatsapp",)
# Values of the Cloud API that Tidings does not accept.
_PIN = "pin"
_INTERACTIVE_LEFT_OUT = frozenset(
    ("order_details", "order_status", "address_message", "call_permission_request", "voice_call")
)
# Fields of a body that are no part of the message itself. `ttl` exists only in v1.
_ASIDE = frozenset(
    ("messaging_product", "recipient", "biz_opaque_callback_data", "recipient_identity_key_hash", "access_token", "ttl")
)


async def post(call: CloudCall) -> Response:
    # This hot route runs without the framework's dependencies, as that of v1 (docs/decisions/0011).
    parameters = await call.parameters()
    product = parameters.get("messaging_product")
    if product is None:
        raise errors.missing("messaging_product")
    if not isinstance(product, str) or product.lower() not in _PRODUCTS:
        raise errors.not_one_of("messaging_product", _PRODUCTS, product)
    if parameters.get("status") is not None:
        return await _mark(call, parameters)
    return await _send(call, parameters)


async def _send(call: CloudCall, parameters: Mapping[str, Any]) -> Response:
    sending = call.find(NumberSendingLimits)
    limits = sending.of(call.caller.account)
    if limits.upgrade_ends_at:
        sending.require_upgraded(limits)
    limit = call.find(NumberLimits).of(call.caller.account).messages
    if limit.share.is_short():
        await limit.share.replenished()
    limit.spend()
    kind, value = read(parameters)
    users = call.find(CloudUsers)
    user_id = users.named(parameters)
    if user_id:
        value["to"] = await users.find_number(call.caller.account, user_id)
    if kind != "text":
        await _resolve_files(call, kind, value.get(kind))
    message = bodies.check(CLOUD_MODELS[kind], value)
    if user_id and isinstance(message, TemplateMessage):
        await require_usable(call.find(Templates), call.caller.account, message)
    try:
        if limits.test_recipients is not None:
            limits.require_allowed(digits(message.to))
        sent = await call.find(Messages).send(call.caller, message, _origin(call, parameters, limits))
    except InvalidRequest as error:
        raise explained(error, message) from None
    return call.respond(describe(sent, message, users.visible(sent.peer), user_id), kind=responses.MESSAGING)


def describe(sent: SentMessage, message: Addressed, visible: str, user_id: str) -> dict[str, Any]:
    """Return the response to an accepted message.

    visible: the recipient's number as ids of messages contain it
    user_id: id of the user that the message is addressed to; empty for a number
    """
    entry = {"id": wamid.encode(sent.id, visible)}
    if isinstance(message, TemplateMessage):
        entry["message_status"] = "accepted"
    return {
        "messaging_product": "whatsapp",
        "contacts": [{"input": user_id, "user_id": user_id} if user_id else {"input": message.to, "wa_id": sent.peer}],
        "messages": [entry],
    }


def read(parameters: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    """Return the type of a message, and its fields with our own ids of messages.

    Raises `GraphError`.
    """
    value = {name: field for name, field in parameters.items() if name not in _ASIDE}
    kind = value.get("type")
    if kind is None:
        kind = "text"
    elif isinstance(kind, str):
        kind = value["type"] = kind.lower()
    if kind == _PIN or value.get("recipient_type") == GROUP:
        raise errors.no_capability()
    if not isinstance(kind, str) or kind not in CLOUD_MODELS:
        raise errors.not_one_of("type", sorted(CLOUD_MODELS), kind)
    if isinstance(value.get("context"), dict):
        value["context"] = {**value["context"], **_own_id(value["context"], "context")}
    content = value.get(kind)
    if kind == "interactive" and bodies.type_of(content) in _INTERACTIVE_LEFT_OUT:
        raise errors.no_capability()
    if kind == "reaction" and isinstance(content, dict):
        value[kind] = {"emoji": "", **content, **_own_id(content, kind)}
    elif kind == "template" and isinstance(content, dict):
        value[kind] = _template(content)
    return kind, value


def _own_id(holder: Mapping[str, Any], where: str) -> Mapping[str, str]:
    """Return the field `message_id` with our own id; an empty mapping when it is absent. Raises `GraphError`.

    Our own ids are accepted as they are. An id that another server made is replaced by its key, which is the id of no
    message here.
    """
    given = holder.get("message_id")
    if not isinstance(given, str) or not given.startswith(wamid.PREFIX):
        return {}
    found = wamid.decode(given)
    own = found.message_id if found is not None else wamid.key_of(given)
    if own is None:
        raise errors.not_valid(f"{where}.message_id: is not the id of a message")
    return {"message_id": own}


def _template(content: Mapping[str, Any]) -> dict[str, Any]:
    """Return a template without `namespace`, which only v1 has, and with the types of parameters in lower case."""
    value = {name: field for name, field in content.items() if name != "namespace"}
    parts = value.get("components")
    if isinstance(parts, list):
        value["components"] = [_part(part) for part in parts]
    return value


def _part(part: Any) -> Any:
    if not isinstance(part, dict):
        return part
    changed = dict(part)
    if isinstance(part.get("parameters"), list):
        changed["parameters"] = [_parameter(parameter) for parameter in part["parameters"]]
    if isinstance(part.get("cards"), list):
        changed["cards"] = [
            {**card, "components": [_part(inner) for inner in card["components"]]}
            if isinstance(card, dict) and isinstance(card.get("components"), list)
            else card
            for card in part["cards"]
        ]
    return changed


def _parameter(parameter: Any) -> Any:
    if isinstance(parameter, dict) and isinstance(parameter.get("type"), str):
        return {**parameter, "type": parameter["type"].lower()}
    return parameter


async def _resolve_files(call: CloudCall, kind: str, content: object) -> None:
    """Replace the Cloud API's ids of files in a content by our own. Raises `GraphError` for an unknown file."""
    for path, _, held in media_objects.find(kind, content):
        given = text_of(held, "id")
        if not given.isdigit():
            continue
        found = await call.find(MediaStore).resolve(call.caller, given) if media_ids.is_media_id(given) else None
        if found is None:
            raise errors.invalid(f"{path}.id: there is no media with this id")
        held["id"] = found


def _origin(call: CloudCall, parameters: Mapping[str, Any], limits: SendingLimits) -> RequestOrigin:
    data = _text(parameters, "biz_opaque_callback_data", MAX_CALLBACK_DATA)
    known = _text(parameters, "recipient_identity_key_hash", 64)
    state = call.request.scope["state"]
    return RequestOrigin(
        state["request_id"],
        traceparent=state.get("traceparent", ""),
        callback_data=data,
        checked_late=True,
        identity_hash=known,
        pair_limited=limits.is_pair_limited,
        recipient_limit=limits.recipients,
        ttl_of=functools.partial(_ttl, call),
    )


def _ttl(call: CloudCall, template: TemplateRow) -> int:
    """Return the seconds that a template lets its message live; 0 for as long as other messages."""
    templates = call.find(Templates)
    if templates.is_mirrored(call.caller.account):
        # The WABA's own time to live applies, and the Coreapp refuses another one.
        return 0
    return template_ttls.of_message(templates.ttl(template), template.category)


def _text(parameters: Mapping[str, Any], name: str, most: int) -> str:
    given = parameters.get(name)
    if given is None:
        return ""
    if not isinstance(given, str) or len(given) > most:
        raise errors.not_valid(f"{name}: should be a string of at most {most} characters")
    return given


def explained(error: InvalidRequest, message: Addressed) -> errors.GraphError | InvalidRequest:
    """Return the Cloud API's own details of an error of a template; the error itself for another one."""
    code = error.problems[0].code
    if isinstance(error, CountMismatch):
        details = (
            f"{error.part}: number of localizable_params ({error.given}) does not match the expected number of params "
            f"({error.expected})"
        )
        return errors.coded(PARAMETER_COUNT, details)
    if code in (codes.TEMPLATE_MISSING, codes.TEMPLATE_REJECTED) and isinstance(message, TemplateMessage):
        template = message.template
        details = f"template name ({template.name}) does not exist in {template.language.code}"
        return errors.coded(TEMPLATE_MISSING, details)
    return error


async def _mark(call: CloudCall, parameters: Mapping[str, Any]) -> Response:
    """Mark a received message and those before it as read, and perhaps show its sender a typing indicator."""
    if parameters["status"] != _READ:
        raise errors.not_one_of("status", (_READ,), parameters["status"])
    given = parameters.get("message_id")
    if given is None:
        raise errors.missing("message_id")
    found = wamid.decode(given) if isinstance(given, str) else None
    if found is None:
        raise errors.invalid(_NO_SUCH_MESSAGE)
    if not found.by_recipient:
        raise errors.invalid(_OUTGOING.format(given))
    typing = _shows_typing(parameters)
    await call.find(NumberLimits).of(call.caller.account).marks.admit()
    try:
        await call.find(Messages).mark_read(call.caller, found.message_id, call.request_id, typing=typing)
    except CoreappRefused as error:
        if error.problems[0].code != codes.NOT_FOUND:
            raise
        raise errors.invalid(_NO_SUCH_MESSAGE) from None
    return call.success(kind=responses.MESSAGING)


def _shows_typing(parameters: Mapping[str, Any]) -> bool:
    """Return whether `typing_indicator` is given. Raises `GraphError` for an indicator of another type."""
    given = parameters.get("typing_indicator")
    if given is None:
        return False
    kind = given.get("type") if isinstance(given, dict) else None
    if kind is None:
        raise errors.coded(PARAMETER_MISSING, "typing_indicator: should be an object with a type")
    if kind not in _TYPING:
        raise errors.not_one_of("typing_indicator.type", _TYPING, kind)
    return True
