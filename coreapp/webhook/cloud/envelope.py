"""Envelope of webhooks in the Cloud API."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tidings.wire.cloud import json_text
from tidings.wire.cloud.identity import NumberIdentity

MESSAGES = "messages"
_HEAD, _TAIL = b'{"object":"whatsapp_business_account","entry":[', b"]}"


def of_messages(identity: NumberIdentity, parts: Mapping[str, Any]) -> bytes:
    """Return the body of a webhook with the field `messages`.

    parts: `contacts`, `messages`, `statuses` and `errors`, those that the event has, in order
    """
    value = {**head(identity), **parts}
    return _wrap({"id": identity.waba_id, "changes": [{"value": value, "field": MESSAGES}]})


def head(identity: NumberIdentity) -> Mapping[str, Any]:
    """Return the first fields of values about users of a number."""
    metadata = {"display_phone_number": identity.account, "phone_number_id": identity.phone_number_id}
    return {"messaging_product": "whatsapp", "metadata": metadata}


def of_account(identity: NumberIdentity, field: str, value: Mapping[str, Any], time: int) -> bytes:
    """Return the body of a webhook about an account, a number or a template.

    time: Unix seconds
    """
    return _wrap({"id": identity.waba_id, "time": time, "changes": [{"value": value, "field": field}]})


def joined(bodies: Sequence[bytes]) -> bytes:
    """Return one body with the entries of several, in order."""
    return _HEAD + b",".join(body[len(_HEAD) : -len(_TAIL)] for body in bodies) + _TAIL


def _wrap(entry: Mapping[str, Any]) -> bytes:
    return _HEAD + json_text.encode(entry) + _TAIL
