"""Errors as the Cloud API's webhooks describe them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tidings.wire import codes
from tidings.wire.cloud import v1_codes
from tidings.wire.cloud.codes import (
    MESSAGE_FAILURES,
    PARAMETER_INVALID,
    SOMETHING_WENT_WRONG,
    UNSUPPORTED_TYPE,
    find_code,
)

HREF = "/documentation/business-messaging/whatsapp/support/error-codes"


def describe(code: int, details: str) -> dict[str, Any]:
    """Return an error with its title."""
    title = find_code(code).title
    return {"code": code, "title": title, "message": title, "error_data": {"details": details}, "href": HREF}


def of_own(code: int, details: str, *, kind: str = "") -> dict[str, Any]:
    """Return an error by our own code. A code of the Cloud API, which a test has chosen, is kept.

    kind: type of the message that failed; empty for another error
    """
    if v1_codes.is_of_message(code):
        return describe(code, details)
    # Of a reaction the target may be invalid, of any other message a file.
    found = PARAMETER_INVALID if kind == "reaction" and code == codes.PARAMETER_INVALID else MESSAGE_FAILURES.get(code)
    return describe(found or SOMETHING_WENT_WRONG, details)


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
