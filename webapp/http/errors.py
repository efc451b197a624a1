"""Errors of an API call, named by what is wrong.

    APIError
    ├── InvalidRequest            400, or by its code: the request is wrong and will stay wrong
    │   ├── BodyTooLarge          413
    │   ├── RequestTooLarge       413: the request needs a call that is larger than a Coreapp accepts
    │   ├── UnknownPath           404
    │   ├── MethodNotAllowed      405
    │   ├── WrongHost             421: `Host` is none of the configured names
    │   └── IdempotencyKeyReused  422: the idempotency key was used for another request
    ├── Unauthenticated           401: no token, or one that is invalid, expired or revoked
    │   └── TokenExpired          401
    ├── AdministratorRequired     403: the token's user may not do this
    ├── WrongPassword             403: the old password of a caller with a valid token
    ├── NameTaken                 500, as in the On-Premises API: a user of that name exists
    ├── PasswordChangeRequired    403: log in again with `new_password`
    ├── RateLimitExceeded         429
    ├── ResponsePending           409: the first request with this idempotency key has no response yet
    ├── Overloaded                503: a backlog is full
    ├── CoreappRefused            by its code: the Coreapp understood and refused
    ├── CoreappUnavailable        500: a request was sent and no response came, so whether it was done is unknown
    │   └── CoreappUnreachable    503: no connection to a Coreapp, so nothing was sent and nothing was done
    ├── InducedFailure            by the test that requested it, or by its code
    ├── FileDamaged               500
    ├── FilesUnavailable          503: the file store of the installation cannot be reached now
    ├── DatabaseUnavailable       503: the database cannot be reached or hangs, and nothing was done
    ├── DatabaseFailed            500: the database refused, or failed when something may have been done
    └── Unexpected                500: a defect in Tidings

Each becomes a response in `webapp.http.responses` and nowhere else.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

from tidings.wire import codes
from tidings.wire.cloud import v1_codes

METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE")
"""Methods of HTTP that endpoints accept, in the order of `Allow`."""


@dataclasses.dataclass(frozen=True, slots=True)
class Problem:
    """Entry of `errors` in a response."""

    code: int
    details: str  # names the field and the reason


class APIError(Exception):
    """Base class of all errors of an API call.

    retry_after: whole seconds for the header of that name; 0 for no header
    """

    status: int | None = None
    headers: Mapping[str, str] = {}

    def __init__(self, problems: Sequence[Problem], *, retry_after: int = 0) -> None:
        super().__init__("; ".join(f"{problem.code} {problem.details}" for problem in problems))
        self.problems = tuple(problems)
        self.retry_after = retry_after


class InvalidRequest(APIError):
    """The request is wrong and will stay wrong."""

    @classmethod
    def because(cls, code: int, details: str) -> InvalidRequest:
        """Create the error with one problem."""
        return cls([Problem(code, details)])


class BodyTooLarge(InvalidRequest):
    """The body exceeds the limit. The rest of it was not read."""

    status = 413

    def __init__(self, limit: int) -> None:
        super().__init__([Problem(codes.INVALID_REQUEST, f"the body is over the limit of {limit} bytes")])


class RequestTooLarge(InvalidRequest):
    """The request needs a call to a Coreapp that exceeds the size limit. Nothing was sent."""

    status = 413

    def __init__(self, limit: int, *, what: str = "the request") -> None:
        details = f"{what} is over the {limit} bytes that a Coreapp accepts at a time"
        super().__init__([Problem(codes.INVALID_REQUEST, details)])
        self.limit = limit


class UnknownPath(InvalidRequest):
    """The path belongs to no endpoint."""

    status = 404

    def __init__(self, path: str) -> None:
        super().__init__([Problem(codes.NOT_FOUND, f"there is no endpoint {path[:200]}")])


class MethodNotAllowed(InvalidRequest):
    """The path exists, but does not accept this method."""

    status = 405

    def __init__(self, method: str, path: str, allowed: str) -> None:
        details = f"{path[:200]} does not take {method[:20]}, it takes {allowed}"
        super().__init__([Problem(codes.INVALID_REQUEST, details)])
        self.headers = {"Allow": allowed}


class WrongHost(InvalidRequest):
    """`Host` of the request is not one of the names in `TIDINGS_HTTP_HOSTS`."""

    status = 421

    def __init__(self, details: str) -> None:
        super().__init__([Problem(codes.INVALID_REQUEST, details)])


class IdempotencyKeyReused(InvalidRequest):
    """The idempotency key was used for a request with a different body."""

    status = 422

    def __init__(self) -> None:
        super().__init__([Problem(codes.PARAMETER_INVALID, "Idempotency-Key: was used for a different request")])


class Unauthenticated(APIError):
    """The request has no token or password, or an invalid one."""

    status = 401

    def __init__(self, details: str, *, scheme: str = "Bearer") -> None:
        super().__init__([Problem(codes.ACCESS_DENIED, details)])
        self.headers = {"WWW-Authenticate": f'{scheme} realm="Tidings"'}


class TokenExpired(Unauthenticated):
    """The token was valid until `expires_at`."""

    def __init__(self, expires_at: float, now: float) -> None:
        """expires_at, now: Unix seconds"""
        super().__init__("the token has expired")
        self.expires_at = expires_at
        self.now = now


class AdministratorRequired(APIError):
    """The token's user may not do this."""

    def __init__(self, details: str) -> None:
        super().__init__([Problem(codes.ACCESS_DENIED, details)])


class WrongPassword(APIError):
    """The caller's token is valid, but the password in the body is wrong."""

    def __init__(self, details: str) -> None:
        super().__init__([Problem(codes.ACCESS_DENIED, details)])


class NameTaken(APIError):
    """A user of that name exists. Status, code and details are those of the On-Premises API."""

    def __init__(self) -> None:
        super().__init__([Problem(codes.INTERNAL_ERROR, "Unable to create user. Already exist?")])


class PasswordChangeRequired(APIError):
    """The password is right, but it is still the first one and must be changed."""

    def __init__(self) -> None:
        super().__init__(
            [Problem(codes.PASSWORD_CHANGE_REQUIRED, "log in again with new_password to replace the default password")]
        )


class RateLimitExceeded(APIError):
    """Too many requests of this kind were sent."""

    def __init__(self, details: str, *, retry_after: int) -> None:
        super().__init__([Problem(codes.TOO_MANY_REQUESTS, details)], retry_after=retry_after)


class ResponsePending(APIError):
    """The first request with this idempotency key has no response yet."""

    status = 409

    def __init__(self) -> None:
        details = "Idempotency-Key: the first request with this key is in progress"
        super().__init__([Problem(codes.INVALID_REQUEST, details)], retry_after=1)


class Overloaded(APIError):
    """A backlog is full. The client should retry later."""

    def __init__(self, details: str, *, retry_after: int = 1) -> None:
        super().__init__([Problem(codes.OVERLOADED, details)], retry_after=retry_after)


class NumberPaused(APIError):
    """The operator has paused the number. The request had no effect and may be repeated later."""

    def __init__(self, number: str) -> None:
        details = f"the number {number} is paused: `tidings number resume {number}` serves it again"
        super().__init__([Problem(codes.NOT_READY, details)], retry_after=60)


class CoreappRefused(APIError):
    """The Coreapp understood the request and refused it."""

    def __init__(self, code: int, details: str, *, retry_after: int = 0) -> None:
        super().__init__([Problem(code, details)], retry_after=retry_after)


class CoreappUnavailable(APIError):
    """The Coreapp disconnected or timed out before it responded. Whether the request was processed is unknown."""

    code = codes.INTERNAL_ERROR

    def __init__(self, details: str, *, retry_after: int = 0) -> None:
        super().__init__([Problem(self.code, details)], retry_after=retry_after)


class CoreappUnreachable(CoreappUnavailable):
    """The Coreapp has no connection. The request was not sent, so it may be repeated."""

    code = codes.NOT_READY

    def __init__(self, details: str) -> None:
        super().__init__(details, retry_after=1)


class InducedFailure(APIError):
    """A test has requested this failure (docs/testing.md)."""

    def __init__(self, cloud_code: int, details: str, *, status: int | None = None, retry_after: int = 0) -> None:
        """Create the error.

        cloud_code: code in the Cloud API; v1 responds with its translation
        status: HTTP status; `None` for that of the code
        """
        super().__init__([Problem(v1_codes.of_request_error(cloud_code), details)], retry_after=retry_after)
        self.status = status
        self.cloud_code = cloud_code


class ResponseWithheld(Exception):
    """A test has requested that the connection closes without a response."""


class FileDamaged(APIError):
    """A stored file differs from what was uploaded. Nothing of it is delivered."""

    def __init__(self) -> None:
        super().__init__([Problem(codes.INTERNAL_ERROR, "the stored file is damaged")])


class FilesUnavailable(APIError):
    """The file store is unavailable, which does not concern the state of any file."""

    def __init__(self) -> None:
        details = "the file store cannot be reached: try again"
        super().__init__([Problem(codes.NOT_READY, details)], retry_after=5)


class DatabaseUnavailable(APIError):
    """The database is unreachable or does not respond. Nothing was done, so the request may be repeated."""

    def __init__(self) -> None:
        details = "the database cannot be reached or does not respond; nothing was done, try again"
        super().__init__([Problem(codes.NOT_READY, details)], retry_after=1)


class DatabaseFailed(APIError):
    """The database refused a statement, or failed when something may have been done."""

    def __init__(self) -> None:
        super().__init__([Problem(codes.DATABASE_ERROR, "the database failed; whether this was done is unknown")])


class Unexpected(APIError):
    """A defect in Tidings. The log has details under the request's id."""

    def __init__(self, request_id: str) -> None:
        super().__init__([Problem(codes.GENERIC_ERROR, f"unexpected error; the log has it under request {request_id}")])
