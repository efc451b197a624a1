"""The API's error codes that arise in the Coreapp, at call time or in a failed status; titles as the API has them."""

from __future__ import annotations

RECIPIENT_BLOCKED = 1007
NOT_FOUND = 1006
SERVICE_NOT_READY = 1011
USER_NOT_VALID = 1013
INTERNAL_ERROR = 1014
OVERLOADED = 1016
NOT_PRIMARY_COREAPP = 1018
BAD_USER = 1021
GENERIC = 500
EXPIRED = 410

TITLES = {
    RECIPIENT_BLOCKED: "Recipient blocked to receive message",
    NOT_FOUND: "Resource not found",
    USER_NOT_VALID: "User is not valid",
    GENERIC: "Generic error",
    EXPIRED: "Message expired",
}

UNKNOWN_CONTACT = "unknown contact"
