"""Responses in 360dialog's format."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
from fastapi import Response

from tidings.wire import codes
from webapp.http.errors import APIError

INVALID_KEY = "Invalid api key"


def success(value: Mapping[str, Any], status: int = 200) -> Response:
    return Response(msgspec.json.encode(value), status, media_type="application/json")


def failed(status: int, message: str) -> Response:
    """Return the response to an error."""
    return success({"meta": {"http_code": status, "developer_message": message, "success": False}}, status)


def of_error(error: APIError) -> Response:
    """Return the response to an error of one of our services."""
    message = "; ".join(problem.details for problem in error.problems)
    found = failed(error.status or codes.find(error.problems[0].code).status, message)
    found.headers.update(error.headers)
    if error.retry_after:
        found.headers["Retry-After"] = str(error.retry_after)
    return found
