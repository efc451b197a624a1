"""Everything that can go wrong with an API call, named by what is wrong.

    APIError
    ├── InvalidRequest            400, or by its code: the request is wrong and will stay wrong
    │   ├── BodyTooLarge          413
    │   ├── QuestionTooLarge      413: what the body asks for is more than a Coreapp takes at a time
    │   ├── UnknownPath           404
    │   ├── MethodNotAllowed      405
    │   └── IdempotencyKeyReused  422: the idempotency key was used for another request
    ├── Unauthenticated           401: no token, or none that is valid (any more)
    ├── AdministratorRequired     403: the token's user may not do this
    ├── WrongPassword             403: the old password of the caller itself, who has a token
    ├── NameTaken                 500, as the original has it: there is a user of that name
    ├── PasswordChangeRequired    403: log in again with `new_password`
    ├── RateLimitExceeded         429
    ├── AnswerPending             409: the first request of this idempotency key has no answer yet
    ├── Overloaded                503: too much is waiting already
    ├── CoreappRefused            by its code: the Coreapp understood and refused
    ├── CoreappAway               500: no answer came to a question that was sent; whether it was done is unknown
    │   └── CoreappUnreachable    503: nobody to ask; nothing was sent, so nothing was done
    ├── FileDamaged               500
    ├── FilesAway                 503: the files of the installation cannot be reached now
    ├── DatabaseAway              503: the database cannot be reached or hangs, and nothing was done
    ├── DatabaseFailed            500: the database refused, or broke off when something may have been done
    └── Unexpected                500: a bug of ours

Each becomes an answer in `webapp.answers` and nowhere else.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

from tidings.wire import codes


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


class InvalidRequest(APIError):
    """The request is wrong and will stay wrong."""

    @classmethod
    def because(cls, code: int, details: str) -> InvalidRequest:
        """With one problem."""
        return cls([Problem(code, details)])


class BodyTooLarge(InvalidRequest):
    """The body is over the limit; the rest of it was not read."""

    status = 413

    def __init__(self, limit: int) -> None:
        super().__init__([Problem(codes.INVALID_REQUEST, f"the body is over the limit of {limit} bytes")])


class QuestionTooLarge(InvalidRequest):
    """The request asks a Coreapp for more than fits into one question; nothing was asked."""

    status = 413

    def __init__(self, limit: int, *, what: str = "the request") -> None:
        details = f"{what} is over the {limit} bytes that a Coreapp takes at a time"
        super().__init__([Problem(codes.INVALID_REQUEST, details)])
        self.limit = limit


class UnknownPath(InvalidRequest):
    """There is nothing at this path."""

    status = 404

    def __init__(self, path: str) -> None:
        super().__init__([Problem(codes.NOT_FOUND, f"there is no endpoint {path[:200]}")])


class MethodNotAllowed(InvalidRequest):
    """There is something at this path, but not for this method."""

    status = 405

    def __init__(self, method: str, path: str, allowed: str) -> None:
        details = f"{path[:200]} does not take {method[:20]}, it takes {allowed}"
        super().__init__([Problem(codes.INVALID_REQUEST, details)])
        self.headers = {"Allow": allowed}


class IdempotencyKeyReused(InvalidRequest):
    """The idempotency key was used for a request with another body."""

    status = 422

    def __init__(self) -> None:
        super().__init__([Problem(codes.PARAMETER_INVALID, "Idempotency-Key: was used for another request")])


class Unauthenticated(APIError):
    """No token or password, or none that holds."""

    status = 401

    def __init__(self, details: str, *, scheme: str = "Bearer") -> None:
        super().__init__([Problem(codes.ACCESS_DENIED, details)])
        self.headers = {"WWW-Authenticate": f'{scheme} realm="Tidings"'}


class AdministratorRequired(APIError):
    """The token's user may not do this."""

    def __init__(self, details: str) -> None:
        super().__init__([Problem(codes.ACCESS_DENIED, details)])


class WrongPassword(APIError):
    """The caller's token is good, the password that was asked for besides is not."""

    def __init__(self, details: str) -> None:
        super().__init__([Problem(codes.ACCESS_DENIED, details)])


class NameTaken(APIError):
    """There is a user of that name; status, code and details are those of the original."""

    def __init__(self) -> None:
        super().__init__([Problem(codes.INTERNAL_ERROR, "Unable to create user. Already exist?")])


class PasswordChangeRequired(APIError):
    """The password is right, but still the default one."""

    def __init__(self) -> None:
        super().__init__(
            [Problem(codes.PASSWORD_CHANGE_REQUIRED, "log in again with new_password to replace the default password")]
        )


class RateLimitExceeded(APIError):
    """Too many requests of this kind."""

    def __init__(self, details: str, *, retry_after: int) -> None:
        super().__init__([Problem(codes.TOO_MANY_REQUESTS, details)], retry_after=retry_after)


class AnswerPending(APIError):
    """The first request of this idempotency key has no answer yet."""

    status = 409

    def __init__(self) -> None:
        details = "Idempotency-Key: the first request with it has no answer yet"
        super().__init__([Problem(codes.INVALID_REQUEST, details)], retry_after=1)


class Overloaded(APIError):
    """Too much is waiting already."""

    def __init__(self, details: str, *, retry_after: int = 1) -> None:
        super().__init__([Problem(codes.OVERLOADED, details)], retry_after=retry_after)


class CoreappRefused(APIError):
    """The Coreapp understood and said no."""

    def __init__(self, code: int, details: str, *, retry_after: int = 0) -> None:
        super().__init__([Problem(code, details)], retry_after=retry_after)


class CoreappAway(APIError):
    """The Coreapp went away before it answered a question that was sent to it."""

    code = codes.INTERNAL_ERROR

    def __init__(self, details: str, *, retry_after: int = 0) -> None:
        super().__init__([Problem(self.code, details)], retry_after=retry_after)


class CoreappUnreachable(CoreappAway):
    """There is no connection to the Coreapp: the question was not sent, and may be asked again."""

    code = codes.NOT_READY

    def __init__(self, details: str) -> None:
        super().__init__(details, retry_after=1)


class FileDamaged(APIError):
    """A file on our disk is not what was stored; nothing of it is handed out."""

    def __init__(self) -> None:
        super().__init__([Problem(codes.INTERNAL_ERROR, "the file is damaged: it is not what was stored")])


class FilesAway(APIError):
    """The store of files cannot be used now, which says nothing about any file."""

    def __init__(self) -> None:
        details = "the files of this installation cannot be reached: try again"
        super().__init__([Problem(codes.NOT_READY, details)], retry_after=5)


class DatabaseAway(APIError):
    """The database cannot be reached or does not answer; nothing was done, so the request may be repeated."""

    def __init__(self) -> None:
        details = "the database cannot be reached or does not answer; nothing was done, try again"
        super().__init__([Problem(codes.NOT_READY, details)], retry_after=1)


class DatabaseFailed(APIError):
    """The database refused a statement, or broke off when something may have been done."""

    def __init__(self) -> None:
        super().__init__([Problem(codes.DATABASE_ERROR, "the database failed; whether this was done is unknown")])


class Unexpected(APIError):
    """A bug of ours; the log has the rest under the request's id."""

    def __init__(self, request_id: str) -> None:
        super().__init__([Problem(codes.GENERIC_ERROR, f"unexpected error; the log has it under request {request_id}")])
