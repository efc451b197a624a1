"""Translation of the Cloud API's error codes into those of v1."""

from __future__ import annotations

from collections.abc import Mapping

from tidings.wire import codes
from tidings.wire.cloud.codes import (
    ACCESS_DENIED,
    CHARACTER_POLICY,
    IDENTITY_MISMATCH,
    INVALID_PARAMETER,
    MEDIA_DOWNLOAD,
    MEDIA_UPLOAD,
    NOT_REGISTERED,
    PARAMETER_COUNT,
    PARAMETER_FORMAT,
    PARAMETER_INVALID,
    PARAMETER_MISSING,
    PAYMENT,
    PERMISSION,
    RECIPIENT_IS_SENDER,
    REENGAGEMENT,
    SERVICE,
    SERVICE_UNAVAILABLE,
    TEMPLATE_DISABLED,
    TEMPLATE_MISSING,
    TEMPLATE_PAUSED,
    TEXT_TOO_LONG,
    UNDELIVERABLE,
    UNSUPPORTED_TYPE,
)

_FIRST, _LAST = 130_000, 139_999  # codes of messages in the Cloud API

REQUEST_ERRORS: Mapping[int, int] = {
    4: codes.TOO_MANY_REQUESTS,
    80007: codes.TOO_MANY_REQUESTS,
    130429: codes.TOO_MANY_REQUESTS,
    131056: codes.TOO_MANY_REQUESTS,
    PERMISSION: codes.ACCESS_DENIED,
    ACCESS_DENIED: codes.ACCESS_DENIED,
    131031: codes.ACCESS_DENIED,
    368: codes.ACCESS_DENIED,
    130497: codes.ACCESS_DENIED,
    INVALID_PARAMETER: codes.PARAMETER_INVALID,
    PARAMETER_INVALID: codes.PARAMETER_INVALID,
    PARAMETER_MISSING: codes.PARAMETER_MISSING,
    SERVICE: codes.OVERLOADED,
    SERVICE_UNAVAILABLE: codes.OVERLOADED,
    131057: codes.NOT_READY,
    133004: codes.NOT_READY,
    NOT_REGISTERED: codes.NOT_READY,
    RECIPIENT_IS_SENDER: codes.BAD_USER,
    UNDELIVERABLE: codes.INVALID_USER,
    131030: codes.INVALID_USER,
    PARAMETER_COUNT: codes.TEMPLATE_PARAMETER_COUNT,
    TEMPLATE_MISSING: codes.TEMPLATE_MISSING,
    TEXT_TOO_LONG: codes.TEMPLATE_TEXT_TOO_LONG,
    CHARACTER_POLICY: codes.TEMPLATE_WHITE_SPACE,
    PARAMETER_FORMAT: codes.TEMPLATE_PARAMETER_FORMAT,
    TEMPLATE_PAUSED: codes.TEMPLATE_PAUSED,
    TEMPLATE_DISABLED: codes.TEMPLATE_DISABLED,
    IDENTITY_MISMATCH: codes.IDENTITY_UNACKNOWLEDGED,
}
"""Codes of v1 for errors of a request. All other codes are 1000."""

MESSAGE_FAILURES: Mapping[int, int] = {
    PAYMENT: codes.PAYMENT,
    130429: codes.RATE_LIMITED,
    131056: codes.RATE_LIMITED,
    131048: codes.SPAM_LIMITED,
    130472: codes.EXPERIMENT,
    REENGAGEMENT: codes.REENGAGEMENT,
    IDENTITY_MISMATCH: codes.USER_CHANGED,
    UNSUPPORTED_TYPE: codes.TYPE_UNSUPPORTED,
    MEDIA_DOWNLOAD: codes.MEDIA_DOWNLOAD,
    MEDIA_UPLOAD: codes.MEDIA_DOWNLOAD,
    UNDELIVERABLE: codes.INVALID_USER,
    131030: codes.INVALID_USER,
}
"""Codes of v1 for failed messages. All other codes are 500."""


def of_request_error(code: int) -> int:
    """Return the code of v1 for an error of a request."""
    return REQUEST_ERRORS.get(code, codes.GENERIC_ERROR)


def is_of_message(code: int) -> bool:
    """Return whether this is a code of the Cloud API about a message."""
    return _FIRST <= code <= _LAST


def of_failed_message(code: int) -> int:
    """Return the code of v1 for the reason why a message failed. A code of v1 is returned as it is."""
    return MESSAGE_FAILURES.get(code, codes.MESSAGE_FAILED) if is_of_message(code) else code
