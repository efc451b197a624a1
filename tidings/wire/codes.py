"""The API's error codes, with their titles in responses and webhook callbacks."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

MEDIA_DOWNLOAD = 400
GROUP_MISSING = 401
PAYMENT = 402
EXPIRED = 410
RATE_LIMITED = 429
REENGAGEMENT = 470
SPAM_LIMITED = 471
EXPERIMENT = 472
USER_CHANGED = 480
MESSAGE_FAILED = 500
TYPE_UNSUPPORTED = 501
GENERIC_ERROR = 1000
MESSAGE_TOO_LONG = 1001
INVALID_RECIPIENT_TYPE = 1002
NOT_GROUP_PARTICIPANT = 1003
ALREADY_EXISTS = 1004
ACCESS_DENIED = 1005
NOT_FOUND = 1006
RECIPIENT_BLOCKED = 1007
PARAMETER_MISSING = 1008
PARAMETER_INVALID = 1009
PARAMETER_NOT_REQUIRED = 1010
NOT_READY = 1011
INVALID_USER = 1013
INTERNAL_ERROR = 1014
TOO_MANY_REQUESTS = 1015
OVERLOADED = 1016
NOT_PRIMARY_COREAPP = 1018
NOT_GROUP_ADMIN = 1019
BAD_USER = 1021
DATABASE_ERROR = 1023
PASSWORD_CHANGE_REQUIRED = 1024
INVALID_REQUEST = 1025
IDENTITY_UNACKNOWLEDGED = 1028
ACCOUNT_LOCKED = 1031
TEMPLATE_PARAMETER_COUNT = 2000
TEMPLATE_MISSING = 2001
TEMPLATE_PARAMETER_TOO_LONG = 2004
TEMPLATE_TEXT_TOO_LONG = 2005
TEMPLATE_WHITE_SPACE = 2006
MEDIA_FORMAT = 2008
TEMPLATE_COMPONENT_MISSING = 2009
TEMPLATE_PARAMETER_FORMAT = 2012
TEMPLATE_BUTTON_UNSUPPORTED = 2013
NAMESPACE_EMPTY = 2014
SECTION_COUNT = 2015
ROW_COUNT = 2016
CHARACTER_POLICY = 2017
PRODUCT_COUNT = 2023
CATALOG_MISSING = 2024
PRODUCTS_MISSING = 2027
HEADER_STRUCTURE = 2036
TEMPLATE_REJECTED = 2060
TEMPLATE_PAUSED = 2061
TEMPLATE_DISABLED = 2062
FLOW_ID = 2064
FLOW_VERSION = 2065
FLOW_MODE = 2066
FLOW_BLOCKED = 2068
FLOW_THROTTLED = 2069

UNKNOWN_CONTACT = "unknown contact"
UNKNOWN_GROUP = "unknown group"


@dataclasses.dataclass(frozen=True, slots=True)
class Code:
    """Title and HTTP status of an error code.

    Codes below 1000 give the reason why a message failed, and do not occur in HTTP responses.
    """

    title: str
    status: int = 500  # unless the error names another one


CODES: Mapping[int, Code] = {
    MEDIA_DOWNLOAD: Code("Media download error"),
    GROUP_MISSING: Code("Group does not exist"),
    PAYMENT: Code("Business eligibility payment issue"),
    EXPIRED: Code("Message expired"),
    RATE_LIMITED: Code("Rate limit hit"),
    REENGAGEMENT: Code("Re-engagement message"),
    SPAM_LIMITED: Code("Spam rate limit hit"),
    EXPERIMENT: Code("User's number is part of an experiment"),
    USER_CHANGED: Code("User potentially changed"),
    MESSAGE_FAILED: Code("Generic error"),
    TYPE_UNSUPPORTED: Code("Message type is not currently supported"),
    GENERIC_ERROR: Code("Generic error"),
    MESSAGE_TOO_LONG: Code("Message too long", 400),
    INVALID_RECIPIENT_TYPE: Code("Invalid recipient type", 400),
    NOT_GROUP_PARTICIPANT: Code("Not a group participant", 403),
    ALREADY_EXISTS: Code("Resource already exists", 400),
    ACCESS_DENIED: Code("Access denied", 403),
    NOT_FOUND: Code("Resource not found", 404),
    RECIPIENT_BLOCKED: Code("Recipient blocked to receive message", 400),
    PARAMETER_MISSING: Code("Required parameter is missing", 400),
    PARAMETER_INVALID: Code("Parameter value is not valid", 400),
    PARAMETER_NOT_REQUIRED: Code("Parameter is not required", 400),
    NOT_READY: Code("Service not ready", 503),
    INVALID_USER: Code("User is not valid", 400),
    INTERNAL_ERROR: Code("Internal error"),
    TOO_MANY_REQUESTS: Code("Too many requests", 429),
    OVERLOADED: Code("System overloaded", 503),
    NOT_PRIMARY_COREAPP: Code("Not Primary Coreapp", 503),
    NOT_GROUP_ADMIN: Code("Not Group Admin", 403),
    BAD_USER: Code("Bad User", 400),
    DATABASE_ERROR: Code("Database error occurred"),
    PASSWORD_CHANGE_REQUIRED: Code("Password change required", 403),
    INVALID_REQUEST: Code("Invalid request", 400),
    IDENTITY_UNACKNOWLEDGED: Code("user_identity_changed needs acknowledgement", 400),
    ACCOUNT_LOCKED: Code("Sender account has been locked", 403),
    TEMPLATE_PARAMETER_COUNT: Code("Template param count mismatch", 400),
    TEMPLATE_MISSING: Code("Template missing", 404),
    TEMPLATE_PARAMETER_TOO_LONG: Code("Parameter too long", 400),
    TEMPLATE_TEXT_TOO_LONG: Code("Hydrated text too long", 400),
    TEMPLATE_WHITE_SPACE: Code("White-space policy violated", 400),
    MEDIA_FORMAT: Code("Media format unsupported", 400),
    TEMPLATE_COMPONENT_MISSING: Code("Required component missing", 400),
    TEMPLATE_PARAMETER_FORMAT: Code("Parameter format mismatch", 400),
    TEMPLATE_BUTTON_UNSUPPORTED: Code("Buttons unsupported", 400),
    NAMESPACE_EMPTY: Code("Expected namespace is empty", 400),
    SECTION_COUNT: Code("Invalid number of sections", 400),
    ROW_COUNT: Code("Invalid number of rows", 400),
    CHARACTER_POLICY: Code("Character policy violated", 400),
    PRODUCT_COUNT: Code("Invalid number of products", 400),
    CATALOG_MISSING: Code("Catalogue id missing", 400),
    PRODUCTS_MISSING: Code("No products", 400),
    HEADER_STRUCTURE: Code("Invalid header structure", 400),
    TEMPLATE_REJECTED: Code("Template rejected", 400),
    TEMPLATE_PAUSED: Code("Template paused", 400),
    TEMPLATE_DISABLED: Code("Template disabled", 400),
    FLOW_ID: Code("Flow: invalid id", 400),
    FLOW_VERSION: Code("Flow: invalid message version", 400),
    FLOW_MODE: Code("Flow: invalid mode", 400),
    FLOW_BLOCKED: Code("Flow: blocked", 400),
    FLOW_THROTTLED: Code("Flow: throttled", 400),
}


def find(code: int) -> Code:
    """Return the entry of a code; that of a generic error for an unknown code."""
    return CODES.get(code, CODES[GENERIC_ERROR])
