"""Error codes of the Cloud API: what each means for the number and the message, and the code of v1 for a message."""

from __future__ import annotations

import re
from collections.abc import Mapping

from tidings.wire import codes
from tidings.wire.cloud import v1_codes

# The token is invalid or lacks a permission, or the phone number cannot send: no message can be sent until it is
# repaired.
_CREDENTIALS = frozenset({0, 3, 10, 33, 104, 190, 131005, 131045, 133010, *range(200, 300)})
# Subcode of code 100: the phone number id is unknown, or the token may not use it.
UNKNOWN_OBJECT = 33
# The whole number sends too much, or the service is overloaded or in maintenance. The message was not accepted.
_NUMBER_WAITS = frozenset({2, 4, 17, 613, 80007, 80008, 130429, 131016, 131057, 133004, 2494100})
# A file of the message cannot be used.
_OF_FILES = frozenset({131052, 131053})
# Too many messages to one recipient.
_RECIPIENT_WAITS = frozenset({131056})
# Code of v1 for a message that was refused with an error that the Cloud API reports at the call only. All other codes
# are translated where they are reported.
_REFUSED: Mapping[int, int] = {
    100: codes.PARAMETER_INVALID,
    131008: codes.PARAMETER_MISSING,
    131009: codes.PARAMETER_INVALID,
    131021: codes.BAD_USER,
    131031: codes.ACCOUNT_LOCKED,
    368: codes.ACCOUNT_LOCKED,
    130497: codes.ACCOUNT_LOCKED,
    132000: codes.TEMPLATE_PARAMETER_COUNT,
    132001: codes.TEMPLATE_MISSING,
    132005: codes.TEMPLATE_TEXT_TOO_LONG,
    132007: codes.TEMPLATE_WHITE_SPACE,
    132008: codes.TEMPLATE_PARAMETER_FORMAT,
    132012: codes.TEMPLATE_PARAMETER_FORMAT,
    132015: codes.TEMPLATE_PAUSED,
    132016: codes.TEMPLATE_DISABLED,
    132018: codes.TEMPLATE_PARAMETER_FORMAT,
    132068: codes.FLOW_BLOCKED,
    132069: codes.FLOW_THROTTLED,
}
_MISSING = re.compile(r"\(#100\) The parameter \S+ is required")


def stops_number(code: int, subcode: int) -> bool:
    """Return whether no message of the number can be sent until an operator has repaired something."""
    return code in _CREDENTIALS or (code == 100 and subcode == UNKNOWN_OBJECT)


def may_be_file(code: int, subcode: int, details: str) -> bool:
    """Return whether the reason may be that the Cloud API does not have a file of the message.

    details: what is wrong, in words
    """
    if code == 100 and subcode == UNKNOWN_OBJECT:
        return True
    return code in _OF_FILES or (code in (100, 131009) and "media" in details.lower())


def delays_number(code: int) -> bool:
    """Return whether the message was refused for now, as all others of the number would be."""
    return code in _NUMBER_WAITS


def delays_recipient(code: int) -> bool:
    """Return whether the message was refused for now, as all others to its recipient would be."""
    return code in _RECIPIENT_WAITS


def of_refusal(code: int, message: str) -> int:
    """Return the code of a failed status for an error: of v1, or of the Cloud API from 130000 on.

    message: title of the error
    """
    if code == 100 and _MISSING.match(message):
        return codes.PARAMETER_MISSING
    if code in _REFUSED:
        return _REFUSED[code]
    return code if v1_codes.is_of_message(code) else codes.MESSAGE_FAILED
