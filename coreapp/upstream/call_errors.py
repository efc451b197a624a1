"""Translation of the Cloud API's errors about a template, a profile or a PIN into those of v1."""

from __future__ import annotations

from collections.abc import Mapping
from http import HTTPStatus

import msgspec

from coreapp.errors import RequestRefused
from coreapp.graph_api.client import CloudResponse
from coreapp.upstream import error_codes
from coreapp.upstream.outcomes import MAX_DETAILS, CloudError
from tidings.wire import codes
from tidings.wire.cloud import v1_codes
from tidings.wire.cloud.codes import INVALID_PARAMETER, PIN_MISMATCH, UNKNOWN
from tidings.wire.decoding import UNREADABLE

MAX_RETRY_AFTER = 3_600  # seconds; a longer `Retry-After` is cut
RETRY_SECONDS = 60  # `Retry-After` for a rate limit that has none, seconds
# The installation's token is invalid, or the app lacks the capability: no fault of the caller.
_LOGIN = frozenset({0, 3, 104, 190})
_RATES = frozenset({4, 17, 613, 80007, 80008, 130429, 133008, 133009, 133016})
_PERMISSIONS = range(200, 300)
_BY_SUBCODE: Mapping[int, int] = {
    error_codes.UNKNOWN_OBJECT: codes.NOT_FOUND,
    2593002: codes.NOT_FOUND,
    2388043: codes.ALREADY_EXISTS,
}


class _CallError(CloudError, gc=False):
    error_user_title: str | None = None
    error_user_msg: str | None = None

    @property
    def explained(self) -> str:
        """Text of the error: the one for the user of the API if there is one."""
        words = ": ".join(text for text in (self.error_user_title, self.error_user_msg) if text)
        return f"{words} (#{self.code})"[:MAX_DETAILS] if words else self.shown


class _Refusal(msgspec.Struct, gc=False):
    error: _CallError


_decode = msgspec.json.Decoder(_Refusal).decode


def find_refusal(response: CloudResponse) -> RequestRefused | None:
    """Return the refusal of a request by an error of the Cloud API; None for a response that has none, as of another
    server.
    """
    try:
        error = _decode(response.content).error
    except UNREADABLE:
        error = None
    if error is None:
        if response.status != HTTPStatus.TOO_MANY_REQUESTS:
            return None
        return RequestRefused(codes.TOO_MANY_REQUESTS, "the Cloud API responds with HTTP 429", _retry_after(response))
    code, details = _code_of(error, response.status), f"the Cloud API refuses: {error.explained}"
    if code == codes.TOO_MANY_REQUESTS:
        return RequestRefused(code, details, _retry_after(response))
    return RequestRefused(code, details, 1 if codes.find(code).status == HTTPStatus.SERVICE_UNAVAILABLE else 0)


def _code_of(error: CloudError, status: int) -> int:
    code = error.code
    if code in _LOGIN:
        return codes.GENERIC_ERROR
    if code in _RATES or status == HTTPStatus.TOO_MANY_REQUESTS:
        return codes.TOO_MANY_REQUESTS
    if code in _PERMISSIONS:
        return codes.ACCESS_DENIED
    if code == INVALID_PARAMETER:
        return _BY_SUBCODE.get(error.error_subcode or 0, error_codes.of_refusal(code, error.message))
    if code == PIN_MISMATCH:
        return codes.PARAMETER_INVALID
    known = v1_codes.of_request_error(code)
    if known == codes.GENERIC_ERROR and 400 <= status < 500 and code != UNKNOWN:
        # The request is at fault, in a way that v1 has no code for.
        return codes.INVALID_REQUEST
    return known


def _retry_after(response: CloudResponse) -> int:
    given = response.headers.get("retry-after", "")
    is_number = given.isascii() and given.isdigit() and len(given) < 10
    return min(int(given), MAX_RETRY_AFTER) if is_number else RETRY_SECONDS
