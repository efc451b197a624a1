"""Errors as the Cloud API's webhooks describe them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tidings.wire.cloud.codes import CODES, LATER, SOMETHING_WENT_WRONG, UNSUPPORTED_TYPE

HREF = "/documentation/business-messaging/whatsapp/support/error-codes"


def describe(code: int, details: str) -> dict[str, Any]:
    """Return an error with its title."""
    title = CODES[code].title
    return {"code": code, "title": title, "message": title, "error_data": {"details": details}, "href": HREF}


def of_own(code: int, details: str) -> dict[str, Any]:
    """Return an error by our own code."""
    return describe(LATER.get(code, SOMETHING_WENT_WRONG), details)


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
