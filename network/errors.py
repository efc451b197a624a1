"""What can go wrong, named by what the caller must do about it.

NetworkError
├── CannotListen        choose another address or certificate, or stop the program that has the address
└── RequestError        answered over HTTP as {"error": {"reason", "detail"}}
    ├── BadRequest      400  mend the request
    ├── Unauthorized    401  send the right token, key or code
    ├── NotFound        404  there is no such path, number or key
    ├── WrongMethod     405  use another method
    ├── TooLarge        413  send less at a time
    ├── TooMany         429  wait for `retry_after` seconds
    └── Unavailable     503  try again later
"""

from __future__ import annotations


class NetworkError(Exception):
    """Base of all."""


class CannotListen(NetworkError):
    """An address is taken or is not one of this machine's, or its certificate cannot be used."""


class RequestError(NetworkError):
    """A request over HTTP that was not done."""

    status = 500
    reason = "internal"

    def __init__(self, detail: str, *, reason: str = "", retry_after: int = 0) -> None:
        super().__init__(detail)
        self.detail = detail
        self.reason = reason or self.reason
        self.retry_after = retry_after


class BadRequest(RequestError):
    status = 400
    reason = "invalid"


class Unauthorized(RequestError):
    status = 401
    reason = "unauthorized"


class NotFound(RequestError):
    status = 404
    reason = "not_found"


class WrongMethod(RequestError):
    status = 405
    reason = "wrong_method"


class TooLarge(RequestError):
    status = 413
    reason = "too_large"


class TooMany(RequestError):
    status = 429
    reason = "rate_limited"


class Unavailable(RequestError):
    status = 503
    reason = "unavailable"
