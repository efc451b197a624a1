"""Contents of messages that a test sends as a recipient, as the recipient's handset encrypts them."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Any

from tidings.wire import addresses, codes, media_objects, recipients
from tidings.wire.cloud import wamid
from webapp.http.errors import InvalidRequest

MAX_NAME = 128  # characters of a name in a profile
MAX_CONTENT = 64 * 1024  # bytes of a content as JSON, without its file

# Types with an object, other than those of files. `contacts` has a list.
_OBJECTS = ("text", "location", "interactive", "button", "order", "reaction", "system", "deleted")
_WITHOUT = ("ephemeral", "unknown")
TYPES = (*_OBJECTS, "contacts", *media_objects.KINDS, *_WITHOUT)
_COPIED = ("referral",)
_UNKNOWN = {"type": "poll", "poll": {"question": "Soup or pasta?"}}


def read(body: object, number: str, business: str) -> recipients.SendAsRecipient:
    """Return the call that sends a message. Raises `InvalidRequest`.

    The body has the format of a message in a webhook: `type`, the object of that name, and `context` and `referral`.
    `profile.name` is the name in the profile, and `to` another number of the business. A file is in the object as
    `data`, in base64. Ids of messages are those of v1 or of the Cloud API.

    number: recipient that sends the message
    business: number that receives it unless the body has `to`
    """
    if not isinstance(body, dict):
        raise _wrong("body", "should be an object")
    kind = body.get("type", "text")
    if kind not in TYPES:
        raise _wrong("type", f"should be one of {', '.join(TYPES)}")
    to = _digits(body.get("to", business))
    content, file, mime_type = _content(kind, body)
    if isinstance(context := body.get("context"), dict):
        content["context"] = _context(context, to)
    content |= {name: body[name] for name in _COPIED if name in body}
    if len(recipients.encode(content)) > MAX_CONTENT:
        raise InvalidRequest.because(codes.MESSAGE_TOO_LONG, f"{kind}: is over {MAX_CONTENT} bytes as JSON")
    return recipients.SendAsRecipient(number, to, content, _name(body), file, mime_type)


def _content(kind: str, body: Mapping[str, Any]) -> tuple[dict[str, Any], bytes, str]:
    """Return the content, its file (empty for none), and the file's MIME type (empty to detect it)."""
    if kind == "unknown":
        return dict(_UNKNOWN), b"", ""
    if kind in _WITHOUT:
        return {"type": kind}, b"", ""
    value: Any = body.get(kind)
    if kind == "contacts" and not isinstance(value, list):
        raise _wrong(kind, "should be a list")
    if kind != "contacts" and not isinstance(value, dict):
        raise _wrong(kind, "should be an object")
    if kind not in media_objects.KINDS:
        if kind in ("reaction", "deleted"):
            value = _with_own_id(value, "message_id" if kind == "reaction" else "id")
        return {"type": kind, kind: value}, b"", ""
    about = {name: value[name] for name in ("caption", "filename") if isinstance(value.get(name), str)}
    mime_type = value.get("mime_type", "")
    if not isinstance(mime_type, str):
        raise _wrong(f"{kind}.mime_type", "should be a string")
    return {"type": kind, kind: about}, _file(kind, value.get("data")), mime_type


def _file(kind: str, data: object) -> bytes:
    try:
        file = base64.b64decode(data, validate=True) if isinstance(data, str) else b""
    except ValueError:
        file = b""
    if not file:
        raise _wrong(f"{kind}.data", "should be the file in base64")
    return file


def _context(given: Mapping[str, Any], business: str) -> dict[str, Any]:
    """Return a context with our own id of the quoted message and its sender, which is the business by default."""
    context = {name: value for name, value in given.items() if name != "message_id"}
    quoted = given.get("message_id", given.get("id"))
    if quoted is not None:
        context |= {"id": _own_id(quoted, "context.id"), "from": given.get("from", business)}
    return context


def _with_own_id(value: Mapping[str, Any], name: str) -> dict[str, Any]:
    return {**value, name: _own_id(value.get(name), name)}


def _own_id(given: object, where: str) -> str:
    if not isinstance(given, str) or not given:
        raise _wrong(where, "should be the id of a message")
    if not given.startswith(wamid.PREFIX):
        return given
    found = wamid.decode(given)
    if found is None:
        raise _wrong(where, "is not the id of a message")
    return found.message_id


def _name(body: Mapping[str, Any]) -> str:
    profile = body.get("profile")
    name = profile.get("name", "") if isinstance(profile, dict) else ""
    if not isinstance(name, str) or len(name) > MAX_NAME:
        raise _wrong("profile.name", f"should be a string of at most {MAX_NAME} characters")
    return name


def _digits(to: object) -> str:
    if not isinstance(to, str) or not addresses.is_wa_id(to.removeprefix("+")):
        raise _wrong("to", "should be a phone number")
    return to.removeprefix("+")


def _wrong(field: str, reason: str) -> InvalidRequest:
    return InvalidRequest.because(codes.PARAMETER_INVALID, f"{field}: {reason}")
