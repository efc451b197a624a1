"""Outcome of a post to the Cloud API, from its response."""

from __future__ import annotations

import dataclasses
from typing import Any

import msgspec

from coreapp.upstream import error_codes
from tidings.storage.business.upstream_ids import MAX_WAMID
from tidings.wire import codes
from tidings.wire.cloud import v1_codes
from tidings.wire.decoding import UNREADABLE

MAX_DETAILS = 1_000  # characters of an error that are kept
MAX_WAIT = 64.0  # seconds; a longer `Retry-After` is cut


@dataclasses.dataclass(frozen=True, slots=True)
class PostAccepted:
    """The Cloud API has accepted the message."""

    wamid: str


@dataclasses.dataclass(frozen=True, slots=True)
class PostRefused:
    """The Cloud API will never accept the message."""

    code: int  # code of v1, or of the Cloud API from 130000 on
    details: str


@dataclasses.dataclass(frozen=True, slots=True)
class PostDelayed:
    """The message was not accepted, and may be sent again later."""

    reason: str
    of_recipient: bool = False  # whether only messages to the same recipient must wait
    seconds: float = 0.0  # least time to wait, as the Cloud API demands; 0 for none


@dataclasses.dataclass(frozen=True, slots=True)
class NumberStopped:
    """The message was not accepted, and none of the number will be until the operator has repaired the reason."""

    reason: str


@dataclasses.dataclass(frozen=True, slots=True)
class PostUnknown:
    """Whether the message was accepted is unknown."""

    reason: str


@dataclasses.dataclass(frozen=True, slots=True)
class FileMissing:
    """The message was refused, perhaps because the Cloud API does not have a file of it."""

    otherwise: PostRefused | NumberStopped  # the outcome for a message without an uploaded file


Outcome = PostAccepted | PostRefused | PostDelayed | NumberStopped | PostUnknown | FileMissing


class _Message(msgspec.Struct, gc=False):
    id: str


class _Sent(msgspec.Struct, gc=False):
    messages: list[_Message]


class CloudError(msgspec.Struct, gc=False):
    """Error of the Graph API."""

    code: int
    message: str = ""
    error_subcode: int | None = None
    error_data: Any = None  # an object with `details`, or a string

    @property
    def details(self) -> str:
        """Text of the error."""
        data = self.error_data
        if isinstance(data, dict):
            data = data.get("details")
        return (data if isinstance(data, str) and data else self.message)[:MAX_DETAILS]

    @property
    def shown(self) -> str:
        """Code and title, with the details if they say more."""
        title = self.message if self.message.startswith("(#") else f"(#{self.code}) {self.message}"
        return (title if self.details in title else f"{title}: {self.details}")[:MAX_DETAILS]


class _Refusal(msgspec.Struct, gc=False):
    error: CloudError


_decode_sent = msgspec.json.Decoder(_Sent).decode
_decode_error = msgspec.json.Decoder(_Refusal).decode


def find_error(content: bytes) -> CloudError | None:
    """Return the error in a response; None for a response without one."""
    try:
        return _decode_error(content).error
    except UNREADABLE:
        return None


def of_response(status: int, content: bytes, retry_after: str = "") -> Outcome:
    """Return the outcome of a post that got a complete response.

    retry_after: value of the header; empty without one
    """
    if 200 <= status < 300:
        return _of_success(content)
    error = find_error(content)
    if error is None:
        if status in (408, 499) or status >= 500 or status < 200:
            return PostUnknown(f"HTTP {status} without an error of the Cloud API")
        # The response is not from the Cloud API but from a proxy, or from another server at a wrong base URL.
        return PostDelayed(f"HTTP {status} without an error of the Cloud API", seconds=_seconds(retry_after))
    code, subcode = error.code, error.error_subcode or 0
    outcome = _of_error(error, status, retry_after)
    if isinstance(outcome, PostRefused | NumberStopped) and error_codes.may_be_file(code, subcode, error.details):
        return FileMissing(outcome)
    return outcome


def _of_error(
    error: CloudError, status: int, retry_after: str
) -> PostRefused | PostDelayed | NumberStopped | PostUnknown:
    code, subcode = error.code, error.error_subcode or 0
    if error_codes.stops_number(code, subcode):
        return NumberStopped(error.shown)
    if error_codes.delays_recipient(code):
        return PostDelayed(error.shown, of_recipient=True, seconds=_seconds(retry_after))
    if error_codes.delays_number(code) or status == 429:
        return PostDelayed(error.shown, seconds=_seconds(retry_after))
    if status >= 500:
        return PostUnknown(f"HTTP {status}: {error.shown}")
    return refused(error)


def refused(error: CloudError) -> PostRefused:
    """Return the refusal of a message by an error, of a response or of a webhook."""
    code = error_codes.of_refusal(error.code, error.message)
    says_nothing = v1_codes.of_failed_message(code) == codes.MESSAGE_FAILED
    return PostRefused(code, error.shown if says_nothing else error.details)


def _of_success(content: bytes) -> Outcome:
    try:
        messages = _decode_sent(content).messages
    except UNREADABLE:
        messages = []
    wamid = messages[0].id if messages else ""
    if not wamid or len(wamid) > MAX_WAMID or not wamid.isascii() or not wamid.isprintable():
        return PostUnknown("HTTP 200 without the id of a message")
    return PostAccepted(wamid)


def _seconds(retry_after: str) -> float:
    return min(float(retry_after), MAX_WAIT) if retry_after.isascii() and retry_after.isdigit() else 0.0
