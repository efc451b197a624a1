"""Exceptions of the network, named by what the caller must do about them.

NetworkError
├── CannotListen        choose another address or certificate, or stop the program that uses the address
├── CannotJoin          start Redis, or correct its address
├── CannotStore         choose another directory for blobs, or give the network permission to write there
└── RequestError        sent over HTTP as {"error": {"reason", "detail"}}
    ├── BadRequest             400  correct the request
    ├── Unauthorized           401  send the right token, key or code
    ├── Forbidden              403  only participants of the group, or its admins, may do this
    ├── KeyRequired            403  register this number with the registration key
    ├── WrongOrigin            403  call from a page of a configured name (TIDINGS_HTTP_HOSTS), or without `Origin`
    ├── NotFound               404  there is no such path, number, key, group or invite
    ├── WrongMethod            405  use another method
    ├── StaleEpoch             409  another program now runs this device: stop
    ├── TooLarge               413  send less at a time
    ├── WrongHost              421  address the server by a configured name (TIDINGS_HTTP_HOSTS)
    ├── Locked                 423  name the PIN of the number's registration lock
    ├── RateLimited            429  wait for `retry_after` seconds, or use what there is
    ├── TooManyUnauthenticated 429  repeat: unauthenticated connections fill the limit of this address or of all
    ├── TooOften               429  ask for the same again after `retry_after` seconds
    ├── Unavailable            503  try again later
    ├── Full                   507  try again much later; the operator has to make room
    └── QuotaExceeded          507  try again much later, when some of the device's own files have expired
"""

from __future__ import annotations

from tidings.wire import groups


class NetworkError(Exception):
    """Base class of the network's exceptions."""


class CannotListen(NetworkError):
    """An address is in use or is not one of this machine's, or its certificate cannot be used."""


class CannotJoin(NetworkError):
    """Redis, by which the nodes of the network find each other, does not respond."""


class CannotStore(NetworkError):
    """The directory of blobs cannot be created or written."""


class RequestError(NetworkError):
    """An HTTP request that was not carried out."""

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


class Forbidden(RequestError):
    status = 403
    reason = groups.NOT_PARTICIPANT


class KeyRequired(RequestError):
    status = 403
    reason = "key_required"


class WrongOrigin(RequestError):
    status = 403
    reason = "wrong_origin"


class NotFound(RequestError):
    status = 404
    reason = "not_found"


class WrongMethod(RequestError):
    status = 405
    reason = "wrong_method"


class StaleEpoch(RequestError):
    status = 409
    reason = "stale_epoch"


class TooLarge(RequestError):
    status = 413
    reason = "too_large"


class WrongHost(RequestError):
    status = 421
    reason = "wrong_host"


class Locked(RequestError):
    status = 423
    reason = "locked"


class RateLimited(RequestError):
    status = 429
    reason = "rate_limited"


class TooManyUnauthenticated(RequestError):
    status = 429
    reason = "crowded"


class TooOften(RequestError):
    status = 429
    reason = "too_often"


class Unavailable(RequestError):
    status = 503
    reason = "unavailable"


class Full(RequestError):
    status = 507
    reason = "full"


class QuotaExceeded(RequestError):
    status = 507
    reason = "quota"
