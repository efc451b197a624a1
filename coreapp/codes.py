"""The API's error codes that arise in the Coreapp, at call time or in a failed status; titles as the API has them."""

from __future__ import annotations

NOT_GROUP_PARTICIPANT = 1003
ACCESS_DENIED = 1005
NOT_FOUND = 1006
RECIPIENT_BLOCKED = 1007
PARAMETER_INVALID = 1009
SERVICE_NOT_READY = 1011
USER_NOT_VALID = 1013
INTERNAL_ERROR = 1014
TOO_MANY_REQUESTS = 1015
OVERLOADED = 1016
NOT_PRIMARY_COREAPP = 1018
NOT_GROUP_ADMIN = 1019
BAD_USER = 1021
IDENTITY_UNACKNOWLEDGED = 1028
MEDIA_DOWNLOAD = 400
GROUP_MISSING = 401
GENERIC = 500
TYPE_UNSUPPORTED = 501
EXPIRED = 410
REENGAGEMENT = 470
USER_CHANGED = 480
MEDIA_FORMAT = 2008

TITLES = {
    RECIPIENT_BLOCKED: "Recipient blocked to receive message",
    NOT_FOUND: "Resource not found",
    PARAMETER_INVALID: "Parameter value is not valid",
    MEDIA_DOWNLOAD: "Media download error",
    GROUP_MISSING: "Group does not exist",
    USER_NOT_VALID: "User is not valid",
    GENERIC: "Generic error",
    EXPIRED: "Message expired",
    REENGAGEMENT: "Re-engagement message",
    USER_CHANGED: "User potentially changed",
    MEDIA_FORMAT: "Media format unsupported",
    TYPE_UNSUPPORTED: "Message type is not currently supported",
}

UNKNOWN_CONTACT = "unknown contact"
UNKNOWN_GROUP = "unknown group"
