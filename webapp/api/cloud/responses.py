"""Responses in the Graph API's format, with its headers."""

from __future__ import annotations

import base64
import dataclasses
import functools
import hashlib
import os
from collections.abc import Mapping, Sequence
from typing import Any

from fastapi import Response

from tidings.wire.cloud import json_text
from webapp.api.cloud.errors import GraphError
from webapp.api.cloud.paths import Version

Headers = list[tuple[bytes, bytes]]

_JSON = (b"content-type", b"application/json; charset=UTF-8")
_PRIVATE = (b"cache-control", b"private, no-cache, no-store, must-revalidate")
NOT_CACHED = (b"cache-control", b"no-store")
# The build of the servers, which clients only log.
_REVISION = (b"x-fb-rev", b"1000000000")
_USAGE = (b"x-app-usage", b'{"call_count":0,"total_cputime":0,"total_time":0}')
USAGE = "x-business-use-case-usage"
_USAGE_OF_WABA = USAGE.encode()
MESSAGING, MANAGEMENT = "whatsapp", "whatsapp_business_management"


@dataclasses.dataclass(frozen=True, slots=True)
class CallShare:
    """Share of the calls of an hour that are used."""

    percent: int = 0
    wait: int = 0  # minutes until calls are admitted again; 0 while they are


UNUSED = CallShare()


def new_trace() -> str:
    """Return an id of a request, which its headers and its error carry."""
    return "A" + base64.urlsafe_b64encode(os.urandom(15)).decode()


class GraphResponse(Response):
    """Response with a complete body and complete headers."""

    def __init__(self, content: bytes, status: int, headers: Headers) -> None:
        """headers: all but the length, which the response takes over"""
        # The framework's constructor would build and encode the headers again.
        self.status_code = status
        self.body = content
        self.background = None
        headers.append((b"content-length", b"%d" % len(content)))
        self.raw_headers = headers


def success(
    value: Any, version: Version, trace: str, *, usage: bytes, is_get: bool = False, status: int = 200
) -> GraphResponse:
    """Return a success response.

    usage: value of `x-business-use-case-usage`
    is_get: whether the response gets an `etag`
    """
    content = json_text.encode(value)
    headers = [_JSON, _PRIVATE, *headers_of(version, trace), (_USAGE_OF_WABA, usage)]
    if is_get:
        headers.append((b"etag", f'"{hashlib.sha256(content).hexdigest()[:40]}"'.encode()))
    return GraphResponse(content, status, headers)


def error_response(error: GraphError, version: Version, trace: str) -> GraphResponse:
    """Return the response to an error."""
    headers = [_JSON, NOT_CACHED, *headers_of(version, trace), _USAGE]
    if error.status in (400, 401):
        words = "".join(letter if " " <= letter <= "~" and letter not in '"\\' else "?" for letter in error.message)
        realm = "invalid_request" if error.status == 400 else "invalid_token"
        headers.append((b"www-authenticate", f'OAuth "Facebook Platform" "{realm}" "{words}"'.encode()))
    headers += [(name.encode(), value.encode()) for name, value in error.headers.items()]
    return GraphResponse(json_text.encode(error.body(trace)), error.status, headers)


def headers_of(version: Version, trace: str) -> Sequence[tuple[bytes, bytes]]:
    """Return the headers that every response has, whatever its body."""
    identified = trace.encode()
    headers = [
        (b"facebook-api-version", version.served.encode()),
        (b"x-fb-request-id", identified),
        (b"x-fb-trace-id", identified[-11:]),
        _REVISION,
    ]
    if version.warning:
        headers.append((b"x-ad-api-version-warning", version.warning.encode()))
    return headers


@functools.lru_cache(1_000)
def usage_of(waba_id: str, kind: str, share: CallShare = UNUSED) -> bytes:
    """Return the value of `x-business-use-case-usage`.

    Leave out a `share` that is `UNUSED`: hashing it costs as much as the rest of the lookup.
    """
    entry: Mapping[str, Any] = {
        "type": kind,
        "call_count": share.percent,
        "total_cputime": 0,
        "total_time": 0,
        "estimated_time_to_regain_access": share.wait,
    }
    return json_text.encode({waba_id: [entry]})
