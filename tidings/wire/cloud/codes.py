"""Error codes of the Cloud API: titles and HTTP statuses, and the translation of our own codes.

`REQUEST_ERRORS` translates errors of a request, `MESSAGE_FAILURES` reasons of a failed message, which webhooks report.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from tidings.wire import codes

UNKNOWN = 1
SERVICE = 2
CAPABILITY = 3
PERMISSION = 10
INVALID_PARAMETER = 100
TOKEN_REQUIRED = 104
TOKEN_INVALID = 190
MANAGEMENT_RATE = 80008
RATE_LIMIT = 130429
SOMETHING_WENT_WRONG = 131000
ACCESS_DENIED = 131005
PARAMETER_MISSING = 131008
PARAMETER_INVALID = 131009
SERVICE_UNAVAILABLE = 131016
RECIPIENT_IS_SENDER = 131021
UNDELIVERABLE = 131026
RECIPIENT_NOT_ALLOWED = 131030
PAYMENT = 131042
REENGAGEMENT = 131047
SPAM_RATE = 131048
UNSUPPORTED_TYPE = 131051
MEDIA_DOWNLOAD = 131052
MEDIA_UPLOAD = 131053
PAIR_RATE = 131056
MAINTENANCE = 131057
USER_ID_UNUSABLE = 131062
PARAMETER_COUNT = 132000
TEMPLATE_MISSING = 132001
TEXT_TOO_LONG = 132005
CHARACTER_POLICY = 132007
PARAMETER_FORMAT = 132012
TEMPLATE_PAUSED = 132015
TEMPLATE_DISABLED = 132016
PIN_MISMATCH = 133005
VERIFY_AGAIN = 133006
NOT_REGISTERED = 133010
IDENTITY_MISMATCH = 137000
BLOCKS_FAILED = 139100
BLOCK_LIST_FULL = 139101


@dataclasses.dataclass(frozen=True, slots=True)
class CloudCode:
    """Title and HTTP status of a code."""

    title: str
    status: int = 400


CODES: Mapping[int, CloudCode] = {
    UNKNOWN: CloudCode("API Unknown"),
    SERVICE: CloudCode("API Service", 503),
    CAPABILITY: CloudCode("Application does not have the capability to make this API call."),
    PERMISSION: CloudCode("Application does not have permission for this action", 403),
    INVALID_PARAMETER: CloudCode("Invalid parameter"),
    TOKEN_REQUIRED: CloudCode("An access token is required to request this resource.", 401),
    TOKEN_INVALID: CloudCode("Invalid OAuth access token - Cannot parse access token", 401),
    MANAGEMENT_RATE: CloudCode("Rate limit issues"),
    RATE_LIMIT: CloudCode("Rate limit hit"),
    SOMETHING_WENT_WRONG: CloudCode("Something went wrong", 500),
    ACCESS_DENIED: CloudCode("Access denied", 403),
    PARAMETER_MISSING: CloudCode("Required parameter is missing"),
    PARAMETER_INVALID: CloudCode("Parameter value is not valid"),
    SERVICE_UNAVAILABLE: CloudCode("Service unavailable", 500),
    RECIPIENT_IS_SENDER: CloudCode("Recipient cannot be sender"),
    UNDELIVERABLE: CloudCode("Message undeliverable"),
    RECIPIENT_NOT_ALLOWED: CloudCode("Recipient phone number not in allowed list"),
    PAYMENT: CloudCode("Business eligibility payment issue"),
    REENGAGEMENT: CloudCode("Re-engagement message"),
    SPAM_RATE: CloudCode("Spam rate limit hit"),
    UNSUPPORTED_TYPE: CloudCode("Unsupported message type"),
    MEDIA_DOWNLOAD: CloudCode("Media download error"),
    MEDIA_UPLOAD: CloudCode("Media upload error"),
    PAIR_RATE: CloudCode("(Business Account, Consumer Account) pair rate limit hit"),
    MAINTENANCE: CloudCode("Account in maintenance mode", 500),
    USER_ID_UNUSABLE: CloudCode("BSUID not usable here"),
    PARAMETER_COUNT: CloudCode("Number of parameters does not match the expected number of params"),
    TEMPLATE_MISSING: CloudCode("Template name does not exist in the translation", 404),
    TEXT_TOO_LONG: CloudCode("Translated text too long"),
    CHARACTER_POLICY: CloudCode("Character policy violated"),
    PARAMETER_FORMAT: CloudCode("Parameter format does not match format in the created template"),
    TEMPLATE_PAUSED: CloudCode("Template is paused"),
    TEMPLATE_DISABLED: CloudCode("Template is disabled"),
    PIN_MISMATCH: CloudCode("Two step verification PIN mismatch"),
    VERIFY_AGAIN: CloudCode("Phone number needs to be verified again"),
    NOT_REGISTERED: CloudCode("Phone number not registered"),
    IDENTITY_MISMATCH: CloudCode("Identity key hash mismatch"),
    BLOCKS_FAILED: CloudCode("Failed to block/unblock users"),
    BLOCK_LIST_FULL: CloudCode("Blocklist limit reached"),
}

FURTHER: Mapping[int, CloudCode] = {
    4: CloudCode("API Too Many Calls"),
    80007: CloudCode("Rate limit issues"),
    130472: CloudCode("User's number is part of an experiment"),
    130497: CloudCode("Business account is restricted from messaging users in this country.", 403),
    131031: CloudCode("Account has been locked", 403),
    131037: CloudCode("WhatsApp provided number needs display name approval before message can be sent."),
    131045: CloudCode("Incorrect certificate", 500),
    131049: CloudCode("This message was not delivered to maintain healthy ecosystem engagement."),
    131050: CloudCode("User has stopped marketing messages"),
    132068: CloudCode("Flow is blocked"),
    132069: CloudCode("Flow is throttled"),
    133004: CloudCode("Server temporarily unavailable", 503),
    135000: CloudCode("Generic user error"),
}
"""Codes that occur only when a test requests them."""


def find_code(code: int) -> CloudCode:
    """Return title and HTTP status of a code; those of an unknown error for a code that is in no table."""
    return CODES.get(code) or FURTHER.get(code) or CODES[UNKNOWN]


REQUEST_ERRORS: Mapping[int, int] = {
    codes.GENERIC_ERROR: SOMETHING_WENT_WRONG,
    codes.MESSAGE_TOO_LONG: INVALID_PARAMETER,
    codes.INVALID_RECIPIENT_TYPE: INVALID_PARAMETER,
    codes.ALREADY_EXISTS: INVALID_PARAMETER,
    codes.ACCESS_DENIED: PERMISSION,
    codes.NOT_FOUND: INVALID_PARAMETER,
    codes.RECIPIENT_BLOCKED: UNDELIVERABLE,
    codes.PARAMETER_MISSING: PARAMETER_MISSING,
    codes.PARAMETER_INVALID: PARAMETER_INVALID,
    codes.PARAMETER_NOT_REQUIRED: PARAMETER_INVALID,
    codes.NOT_READY: SERVICE_UNAVAILABLE,
    codes.INVALID_USER: UNDELIVERABLE,
    codes.INTERNAL_ERROR: SOMETHING_WENT_WRONG,
    codes.TOO_MANY_REQUESTS: RATE_LIMIT,
    codes.OVERLOADED: SERVICE_UNAVAILABLE,
    codes.NOT_PRIMARY_COREAPP: SERVICE_UNAVAILABLE,
    codes.BAD_USER: RECIPIENT_IS_SENDER,
    codes.DATABASE_ERROR: SOMETHING_WENT_WRONG,
    codes.PASSWORD_CHANGE_REQUIRED: TOKEN_INVALID,
    codes.INVALID_REQUEST: INVALID_PARAMETER,
    codes.IDENTITY_UNACKNOWLEDGED: IDENTITY_MISMATCH,
    codes.TEMPLATE_PARAMETER_COUNT: PARAMETER_COUNT,
    codes.TEMPLATE_MISSING: TEMPLATE_MISSING,
    codes.TEMPLATE_PARAMETER_TOO_LONG: TEXT_TOO_LONG,
    codes.TEMPLATE_TEXT_TOO_LONG: TEXT_TOO_LONG,
    codes.TEMPLATE_WHITE_SPACE: CHARACTER_POLICY,
    codes.MEDIA_FORMAT: PARAMETER_FORMAT,
    codes.TEMPLATE_COMPONENT_MISSING: PARAMETER_FORMAT,
    codes.TEMPLATE_PARAMETER_FORMAT: PARAMETER_FORMAT,
    codes.TEMPLATE_REJECTED: TEMPLATE_MISSING,
    codes.TEMPLATE_PAUSED: TEMPLATE_PAUSED,
    codes.TEMPLATE_DISABLED: TEMPLATE_DISABLED,
}
"""Codes of errors of a request, by our own codes. Those between 2013 and 2066 that are absent are 131009."""

MESSAGE_FAILURES: Mapping[int, int] = {
    codes.MEDIA_DOWNLOAD: MEDIA_UPLOAD,
    # A linked file that is missing, too large or of another type.
    codes.NOT_FOUND: MEDIA_UPLOAD,
    codes.PARAMETER_INVALID: MEDIA_UPLOAD,
    codes.MEDIA_FORMAT: MEDIA_UPLOAD,
    codes.REENGAGEMENT: REENGAGEMENT,
    codes.USER_CHANGED: IDENTITY_MISMATCH,
    codes.MESSAGE_FAILED: SOMETHING_WENT_WRONG,
    codes.TYPE_UNSUPPORTED: UNSUPPORTED_TYPE,
    codes.INVALID_USER: UNDELIVERABLE,
    codes.RECIPIENT_BLOCKED: UNDELIVERABLE,
}
"""Codes of failed messages, by our own codes. An expired message (410) fails silently in the Cloud API."""


def of_request_error(code: int) -> int:
    """Return the code of an error of a request, by our own code."""
    found = REQUEST_ERRORS.get(code)
    if found is None:
        return PARAMETER_INVALID if codes.find(code).status == 400 else SOMETHING_WENT_WRONG
    return found
