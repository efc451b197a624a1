"""Errors as the Cloud API's webhooks describe them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tidings.wire.cloud import v1_codes
from tidings.wire.cloud.codes import LATER, SOMETHING_WENT_WRONG, UNSUPPORTED_TYPE, find_code

HREF = "/documentation/business-messaging/whatsapp/support/error-codes"


def describe(code: int, details: str) -> dict[str, Any]:
    """Return an error with its title."""
    title = find_code(code).title
    return {"code": code, "title": title, "message": title, "error_data": {"details": details}, "href": HREF}


def of_own(code: int, details: str) -> dict[str, Any]:
    """Return an error by our own code. A code of the Cloud API, which a test has chosen, is kept."""
    return describe(code if v1_codes.is_of_message(code) else LATER.get(code, SOMETHING_WENT_WRONG), details)


def unsupported() -> Mapping[str, Any]:
    """Return the fields of a message whose type is not supported."""
    title = "Message type unknown"
    error = {
        "code": UNSUPPORTED_TYPE,
        "title": title,
        "message": title,
        "error_data": {"details": "Message type is currently not supported."},
    }
    return {"errors": [error], "unsupported": {"type": "unknown"}}
