"""Errors in the Graph API's format, and the translation of the errors of our services."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

from tidings.wire.cloud import v1_codes
from tidings.wire.cloud.codes import (
    CAPABILITY,
    CODES,
    INVALID_PARAMETER,
    PAIR_RATE,
    PARAMETER_INVALID,
    PARAMETER_MISSING,
    RATE_LIMIT,
    TOKEN_INVALID,
    TOKEN_REQUIRED,
    find_code,
    of_request_error,
)
from webapp.http.errors import APIError, BodyTooLarge, InducedFailure, Problem, TokenExpired, Unauthenticated

OAUTH, GRAPH_METHOD = "OAuthException", "GraphMethodException"
UNKNOWN_PATH = 2500
EXPIRED = 463  # subcode of an expired token
_THROTTLED = frozenset((RATE_LIMIT, PAIR_RATE))  # codes with the HTTP status of rate limits
_THROUGHPUT = "Cloud API message throughput has been reached."
_MAX_ID = 100  # characters of an id from a path that an error repeats


class GraphError(Exception):
    """Error of a call, as the Graph API describes it."""

    def __init__(
        self,
        message: str,
        *,
        code: int = INVALID_PARAMETER,
        status: int = 400,
        kind: str = OAUTH,
        details: str = "",
        extra: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        """Create the error.

        details: explanation for `error_data`; empty for no `error_data`
        extra: further fields of Graph errors, such as `error_subcode`, in order; `None` for none
        headers: further headers of the response; `None` for none
        """
        super().__init__(f"{code} {message} {details}".strip())
        self.status = status
        self.headers = dict(headers or {})
        self.message = message
        self._code = code
        self._kind = kind
        self._details = details
        self._extra = dict(extra or {})

    def body(self, trace: str) -> dict[str, Any]:
        """Return the response body.

        trace: id of the request for the client's reports
        """
        error: dict[str, Any] = {"message": self.message, "type": self._kind, "code": self._code}
        if self._details:
            error["error_data"] = {"messaging_product": "whatsapp", "details": self._details}
        return {"error": error | self._extra | {"fbtrace_id": trace}}


def coded(code: int, details: str = "", *, status: int | None = None, retry_after: int = 0) -> GraphError:
    """Return an error with the title and the HTTP status of its code.

    retry_after: whole seconds for the header of that name; 0 for no header
    """
    known = find_code(code)
    message = f"(#{code}) {known.title}"
    headers = {"retry-after": str(retry_after)} if retry_after else None
    return GraphError(message, code=code, status=status or known.status, details=details, headers=headers)


def missing(name: str) -> GraphError:
    return GraphError(f"(#100) The parameter {name} is required.")


def for_user(subcode: int, title: str, words: str) -> GraphError:
    """Return the error of a parameter that is explained to the user of the client, not only to its author."""
    shown = {"error_subcode": subcode, "is_transient": False, "error_user_title": title, "error_user_msg": words}
    return GraphError("Invalid parameter", extra=shown)


def not_one_of(name: str, choices: Sequence[str], given: object) -> GraphError:
    """Return the error of a parameter that is none of the choices."""
    listed = ", ".join(choice.upper() for choice in choices)
    return GraphError(f'(#100) Param {name} must be one of {{{listed}}} - got "{str(given)[:_MAX_ID]}".')


def unsupported(method: str, node: str) -> GraphError:
    """Return the error of an object that does not exist, belongs to another account or has no such call."""
    if method == "DELETE" and not (node.isascii() and node.isdigit()):
        return GraphError("(#100) Invalid post_id parameter")
    message = (
        f"Unsupported {method.lower()[:10]} request. Object with ID '{node[:_MAX_ID]}' does not exist, cannot be "
        "loaded due to missing permissions, or does not support this operation. Please read the Graph API "
        "documentation at https://developers.facebook.com/docs/graph-api"
    )
    return GraphError(message, kind=GRAPH_METHOD, extra={"error_subcode": 33})


def no_capability() -> GraphError:
    """Return the error of a call that Tidings leaves out."""
    return coded(CAPABILITY)


def unknown_path(path: str) -> GraphError:
    return GraphError(f"Unknown path components: {path[:_MAX_ID]}", code=UNKNOWN_PATH)


def unknown_field(name: str, node_type: str) -> GraphError:
    return GraphError(f"(#100) Tried accessing nonexisting field ({name[:_MAX_ID]}) on node type ({node_type})")


def no_such_url() -> GraphError:
    """Return the error of a URL of a file that is unknown, expired or used without a token."""
    return GraphError("(#100) The URL is unknown or has expired", status=404)


def range_beyond(size: int) -> GraphError:
    """Return the error of a range that begins after the end of a file.

    size: of the file, in bytes
    """
    return GraphError(
        "(#100) The requested range is not in the file", status=416, headers={"content-range": f"bytes */{size}"}
    )


def token_required() -> GraphError:
    return GraphError(CODES[TOKEN_REQUIRED].title, code=TOKEN_REQUIRED, status=401)


def translate(error: APIError, throttle_status: int) -> GraphError:
    """Return the error of one of our services in the Graph API's format.

    throttle_status: HTTP status of rate limits
    """
    if isinstance(error, Unauthenticated):
        return _of_token(error)
    first = error.problems[0]
    if isinstance(error, InducedFailure):
        return coded(error.cloud_code, first.details, status=error.status, retry_after=error.retry_after)
    if isinstance(error, BodyTooLarge):
        return coded(INVALID_PARAMETER, first.details, status=413)
    if v1_codes.is_of_message(first.code):
        # The Coreapp refuses by limits that only the Cloud API has.
        status = throttle_status if first.code in _THROTTLED else None
        return coded(first.code, first.details, status=status, retry_after=error.retry_after)
    code = of_request_error(first.code)
    if code == RATE_LIMIT:
        return coded(RATE_LIMIT, _THROUGHPUT, status=throttle_status, retry_after=error.retry_after)
    if code == PARAMETER_MISSING and _is_top_level(first):
        return missing(first.details.partition(":")[0])
    details = "; ".join(problem.details for problem in error.problems if of_request_error(problem.code) == code)
    return coded(code, details, retry_after=error.retry_after)


def _is_top_level(problem: Problem) -> bool:
    """Return whether the problem is that a parameter of the call itself is missing."""
    field, _, reason = problem.details.partition(": ")
    return reason == "is missing" and field.replace("_", "").isalnum()


def _of_token(error: Unauthenticated) -> GraphError:
    if isinstance(error, TokenExpired):
        ended, now = _moment(error.expires_at), _moment(error.now)
        message = f"Error validating access token: Session has expired on {ended}. The current time is {now}."
        return GraphError(message, code=TOKEN_INVALID, status=401, extra={"error_subcode": EXPIRED})
    return GraphError(CODES[TOKEN_INVALID].title, code=TOKEN_INVALID, status=401)


def _moment(seconds: float) -> str:
    return time.strftime("%A, %d-%b-%y %H:%M:%S UTC", time.gmtime(seconds))


def invalid(details: str) -> GraphError:
    """Return the error of a parameter whose value cannot be used, with the reason."""
    return coded(INVALID_PARAMETER, details)


def not_valid(details: str) -> GraphError:
    """Return the error of a value in a message that cannot be used, with the reason."""
    return coded(PARAMETER_INVALID, details)
