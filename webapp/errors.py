"""Everything that can go wrong with an API call, named by what the caller must do.

    APIError
    ├── FixRequest             400, or by its code: the request is wrong and will stay wrong
    │   ├── ShortenBody        413
    │   ├── SendLess           413: what the body asks for is more than a Coreapp takes at a time
    │   ├── UseAnotherPath     404
    │   ├── UseAnotherKey      422: the idempotency key was used for another request
    │   └── UseAnotherMethod   405
    ├── LogIn                  401: no token, or none that holds (any more)
    ├── AskAdministrator       403: the token's user may not do this
    ├── TakeAnotherName        500, as the original has it: there is a user of that name
    ├── ChangePassword         403: log in again with `new_password`
    ├── SlowDown               429
    ├── WaitForAnswer          409: the first request of this idempotency key has no answer yet
    ├── TryLater               503: too much is waiting already
    ├── CoreappRefused         by its code: the Coreapp understood and said no
    ├── CoreappAway            500: no answer came to a question that was sent; whether it was done is unknown
    │   └── CoreappUnreachable 503: nobody to ask; nothing was sent, so nothing was done
    ├── DatabaseFailed         500
    └── Unexpected             500: a bug of ours

Each becomes an answer in `webapp.answers` and nowhere else.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

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


@dataclasses.dataclass(frozen=True, slots=True)
class Code:
    """What a code is called, and the HTTP status it comes with unless the error has one of its own."""

    title: str
    status: int


CODES: Mapping[int, Code] = {
    GENERIC_ERROR: Code("Generic error", 500),
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
    INTERNAL_ERROR: Code("Internal error", 500),
    TOO_MANY_REQUESTS: Code("Too many requests", 429),
    OVERLOADED: Code("System overloaded", 503),
    NOT_PRIMARY_COREAPP: Code("Not Primary Coreapp", 503),
    NOT_GROUP_ADMIN: Code("Not Group Admin", 403),
    BAD_USER: Code("Bad User", 400),
    DATABASE_ERROR: Code("Database error occurred", 500),
    PASSWORD_CHANGE_REQUIRED: Code("Password change required", 403),
    INVALID_REQUEST: Code("Invalid request", 400),
    IDENTITY_UNACKNOWLEDGED: Code("user_identity_changed needs acknowledgement", 400),
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
}


@dataclasses.dataclass(frozen=True, slots=True)
class Problem:
    """One entry of `errors`; details say which field and why."""

    code: int
    details: str


class APIError(Exception):
    """Base of the tree.

    retry_after: whole seconds for the header of that name; 0 is none.
    """

    status: int | None = None
    headers: Mapping[str, str] = {}

    def __init__(self, problems: Sequence[Problem], *, retry_after: int = 0) -> None:
        super().__init__("; ".join(f"{problem.code} {problem.details}" for problem in problems))
        self.problems = tuple(problems)
        self.retry_after = retry_after


class FixRequest(APIError):
    """The request is wrong and will stay wrong."""

    @classmethod
    def because(cls, code: int, details: str) -> FixRequest:
        """With one problem."""
        return cls([Problem(code, details)])


class ShortenBody(FixRequest):
    """The body is over the limit; the rest of it was not read."""

    status = 413

    def __init__(self, limit: int) -> None:
        super().__init__([Problem(INVALID_REQUEST, f"the body is over the limit of {limit} bytes")])


class SendLess(FixRequest):
    """What the request asks a Coreapp for is more than fits into one question; it was not asked."""

    status = 413

    def __init__(self, limit: int, *, what: str = "the request") -> None:
        super().__init__([Problem(INVALID_REQUEST, f"{what} is over the {limit} bytes that a Coreapp takes at a time")])
        self.limit = limit


class UseAnotherPath(FixRequest):
    """There is nothing at this path."""

    status = 404

    def __init__(self, path: str) -> None:
        super().__init__([Problem(NOT_FOUND, f"there is no endpoint {path[:200]}")])


class UseAnotherMethod(FixRequest):
    """There is something at this path, but not for this method."""

    status = 405

    def __init__(self, method: str, path: str, allowed: str) -> None:
        super().__init__([Problem(INVALID_REQUEST, f"{path[:200]} does not take {method[:20]}, it takes {allowed}")])
        self.headers = {"Allow": allowed}


class UseAnotherKey(FixRequest):
    """The idempotency key was used for a request with another body."""

    status = 422

    def __init__(self) -> None:
        super().__init__([Problem(PARAMETER_INVALID, "Idempotency-Key: was used for another request")])


class LogIn(APIError):
    """No token or password, or none that holds."""

    status = 401

    def __init__(self, details: str, *, scheme: str = "Bearer") -> None:
        super().__init__([Problem(ACCESS_DENIED, details)])
        self.headers = {"WWW-Authenticate": f'{scheme} realm="Tidings"'}


class AskAdministrator(APIError):
    """The token's user may not do this."""

    def __init__(self, details: str) -> None:
        super().__init__([Problem(ACCESS_DENIED, details)])


class TakeAnotherName(APIError):
    """There is a user of that name; status, code and details are those of the original."""

    def __init__(self) -> None:
        super().__init__([Problem(INTERNAL_ERROR, "Unable to create user. Already exist?")])


class ChangePassword(APIError):
    """The password is right, but still the default one."""

    def __init__(self) -> None:
        super().__init__(
            [Problem(PASSWORD_CHANGE_REQUIRED, "log in again with new_password to replace the default password")]
        )


class SlowDown(APIError):
    """Too many requests of this kind."""

    def __init__(self, details: str, *, retry_after: int) -> None:
        super().__init__([Problem(TOO_MANY_REQUESTS, details)], retry_after=retry_after)


class WaitForAnswer(APIError):
    """The first request of this idempotency key has no answer yet."""

    status = 409

    def __init__(self) -> None:
        details = "Idempotency-Key: the first request with it has no answer yet"
        super().__init__([Problem(INVALID_REQUEST, details)], retry_after=1)


class TryLater(APIError):
    """Too much is waiting already."""

    def __init__(self, details: str, *, retry_after: int = 1) -> None:
        super().__init__([Problem(OVERLOADED, details)], retry_after=retry_after)


class CoreappRefused(APIError):
    """The Coreapp understood and said no."""

    def __init__(self, code: int, details: str, *, retry_after: int = 0) -> None:
        super().__init__([Problem(code, details)], retry_after=retry_after)


class CoreappAway(APIError):
    """The Coreapp went away before it answered a question that was sent to it."""

    code = INTERNAL_ERROR

    def __init__(self, details: str, *, retry_after: int = 0) -> None:
        super().__init__([Problem(self.code, details)], retry_after=retry_after)


class CoreappUnreachable(CoreappAway):
    """There is no connection to the Coreapp: the question was not sent, and may be asked again."""

    code = NOT_READY

    def __init__(self, details: str) -> None:
        super().__init__(details, retry_after=1)


class FileDamaged(APIError):
    """A file on our disk is not what was stored; nothing of it is handed out."""

    def __init__(self) -> None:
        super().__init__([Problem(INTERNAL_ERROR, "the file is damaged: it is not what was stored")])


class DatabaseFailed(APIError):
    """The database is away or refuses."""

    def __init__(self) -> None:
        super().__init__([Problem(DATABASE_ERROR, "the database cannot be reached")])


class Unexpected(APIError):
    """A bug of ours; the log has the rest under the request's id."""

    def __init__(self, request_id: str) -> None:
        super().__init__([Problem(GENERIC_ERROR, f"unexpected error; the log has it under request {request_id}")])
