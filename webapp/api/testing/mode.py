"""Calls below `/tidings/`: acting as recipients, webhooks, faults, and a reset."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping
from typing import Any

import msgspec
import pydantic
from fastapi import Request, Response
from prometheus_client import Gauge

from tidings.http.hosts import Hosts
from tidings.testing import numbers
from tidings.testing.faults import Fault, FaultFile, FaultTarget, TooManyFaults
from tidings.wire import addresses, codes, core, recipients
from tidings.wire.cloud import wamid
from tidings.wire.cloud.codes import find_code
from webapp.api.cloud.access import CloudAccess
from webapp.api.cloud.errors import GraphError
from webapp.api.testing import contents
from webapp.api.testing.robots_link import RobotsLink
from webapp.api.testing.webhooks import WebhookRequest
from webapp.auth.authenticator import authorization
from webapp.auth.tokens import Caller
from webapp.coreapps.interfaces import Coreapps, PrimaryCoreapps
from webapp.http import bodies, dependencies, responses
from webapp.http.bodies import BodyLimit
from webapp.http.errors import (
    CoreappRefused,
    CoreappUnavailable,
    InducedFailure,
    InvalidRequest,
    MethodNotAllowed,
    Overloaded,
    Unauthenticated,
    UnknownPath,
    WrongHost,
)

PREFIX = "/tidings/"
RESET_SECONDS = 30.0
MAX_TIMES = 1_000_000
REQUESTED = "a fault of POST /tidings/faults"

FAULTS = Gauge("tidings_test_faults", "Calls that are still to fail because a test requested it", ["target"])

_RECIPIENT = re.compile(r"recipients/\+?([0-9]{1,20})/(messages|shown)", re.ASCII)
_FAULT = re.compile(r"faults/([0-9]{1,9})", re.ASCII)


class FaultRequest(pydantic.BaseModel):
    """Body of `POST /tidings/faults`."""

    model_config = pydantic.ConfigDict(extra="forbid")

    target: FaultTarget
    times: int = pydantic.Field(1, ge=1, le=MAX_TIMES)
    every: int = pydantic.Field(0, ge=0, le=MAX_TIMES)
    http: int | None = pydantic.Field(None, ge=400, le=599)
    code: int = pydantic.Field(131000, ge=0, le=9_999_999)
    retry_after_s: int = pydantic.Field(0, ge=0, le=86_400)

    def add_to(self, faults: FaultFile) -> Fault:
        """Add the fault, with the status of its code unless another one is given. Raises `TooManyFaults`."""
        http = self.http if self.http is not None else max(400, find_code(self.code).status)
        return faults.add(
            self.target,
            self.times,
            every=self.every,
            http=http,
            code=self.code,
            retry_after_s=self.retry_after_s,
        )


@dataclasses.dataclass(eq=False, repr=False, kw_only=True)
class TestMode:
    """The calls below `/tidings/` of one installation."""

    __test__ = False  # this is no class of tests

    robots: RobotsLink
    faults: FaultFile
    coreapps: Coreapps
    primary_coreapps: PrimaryCoreapps
    hosts: Hosts  # names by which clients may address the API, in addition to those of loopback
    access: CloudAccess  # check of tokens: those of v1 and of the Cloud API
    embedded: bool  # whether this installation may be emptied
    with_user_ids: bool = False  # whether users have ids in the Cloud API

    def __post_init__(self) -> None:
        for target in FaultTarget:
            FAULTS.labels(target.value).set_function(lambda target=target: self.faults.left(target))  # type: ignore[misc]

    def apply_fault(self, target: FaultTarget) -> None:
        """Count a request. Raises `InducedFailure` when a fault applies to it."""
        fault = self.faults.take(target)
        if fault is not None:
            # With the status of its code in the Cloud API, v1 uses that of its own code.
            status = fault.http if fault.http != find_code(fault.code).status else None
            raise InducedFailure(fault.code, REQUESTED, status=status, retry_after=fault.retry_after_s)

    async def respond(self, request: Request) -> Response:
        """Return the response to a request below `/tidings/`. Raises `APIError`."""
        wrong = self.hosts.host_error(request.scope["headers"], b"/", is_local=True)
        if wrong:
            raise WrongHost(wrong)
        caller = await self._caller(request)
        method, path = request.scope["method"], request.scope["path"].removeprefix(PREFIX)
        if found := _RECIPIENT.fullmatch(path):
            return await self._of_recipient(request, caller, method, *found.groups())
        if path == "faults":
            return await self._of_faults(request, method)
        if found := _FAULT.fullmatch(path):
            _require(method, ("DELETE",), path)
            if not self.faults.delete(int(found[1])):
                raise InvalidRequest.because(codes.NOT_FOUND, f"there is no fault {found[1]}")
            return responses.success({})
        if path == "webhooks":
            _require(method, ("POST",), path)
            return await self._queue_webhook(request, caller.account)
        if path == "reset":
            _require(method, ("POST",), path)
            return await self._reset()
        raise UnknownPath(request.scope["path"])

    async def _caller(self, request: Request) -> Caller:
        if not authorization(request):
            raise Unauthenticated("a token is required: Authorization: Bearer …")
        try:
            return await self.access.caller(request, "")
        except GraphError as error:
            raise Unauthenticated(error.message) from None

    async def _of_recipient(self, request: Request, caller: Caller, method: str, number: str, edge: str) -> Response:
        if edge == "messages":
            _require(method, ("POST",), edge)
            body = await bodies.read_json(request, limit=dependencies.find(request, BodyLimit).bytes)
            sent = await self.robots.call(contents.read(body, number, caller.account))
            visible = numbers.visible(number, with_ids=self.with_user_ids)
            entry = {"id": sent.id, "wamid": wamid.encode(sent.id, visible, by_recipient=True)}
            return responses.success({"messages": [entry]}, status=201)
        _require(method, ("GET",), edge)
        after, limit = (_whole(request, name, default) for name, default in (("after", 0), ("limit", 100)))
        listed = recipients.ListShown(number, after, min(max(limit, 1), recipients.MAX_SHOWN))
        found = await self.robots.call(listed)
        visible = numbers.visible(number, with_ids=self.with_user_ids)
        return responses.success({"messages": [_shown(one, visible) for one in found.shown], "typing": found.typing})

    async def _of_faults(self, request: Request, method: str) -> Response:
        _require(method, ("GET", "POST", "DELETE"), "faults")
        if method == "DELETE":
            self.faults.clear()
            return responses.success({})
        if method == "GET":
            return responses.success({"faults": [_described(fault) for fault in self.faults.list_all()]})
        value = await bodies.read_json(request, limit=dependencies.find(request, BodyLimit).bytes)
        wanted = bodies.check(FaultRequest, value)
        try:
            fault = wanted.add_to(self.faults)
        except TooManyFaults as error:
            raise Overloaded("100 faults exist: delete one first") from error
        return responses.success({"faults": [_described(fault)]}, status=201)

    async def _queue_webhook(self, request: Request, account: str) -> Response:
        value = await bodies.read_json(request, limit=dependencies.find(request, BodyLimit).bytes)
        event = await bodies.check(WebhookRequest, value).queue(account, self.primary_coreapps.of(account))
        return responses.success({"webhooks": [{"id": event}]}, status=202)

    async def _reset(self) -> Response:
        """Delete jobs, callbacks, messages, faults and the messages that recipients have received."""
        if not self.embedded:
            details = "reset: needs an embedded installation (tidings up); this Webapp runs without TIDINGS_EMBEDDED=1"
            raise CoreappRefused(codes.ACCESS_DENIED, details)
        self.faults.clear()
        deleted = 0
        for response in await self.coreapps.call_all(
            lambda n: core.EmptyQueues(n=n), core.Purged, timeout=RESET_SECONDS
        ):
            if isinstance(response, CoreappUnavailable):
                raise response
            deleted += response.count
        await self.robots.call(recipients.DropShown())
        return responses.success({"deleted": deleted})


def _require(method: str, allowed: tuple[str, ...], path: str) -> None:
    if method not in allowed:
        raise MethodNotAllowed(method, PREFIX + path, ", ".join(allowed))


def _whole(request: Request, name: str, default: int) -> int:
    text = request.query_params.get(name, "")
    if text and not addresses.is_digits(text, 1, 15):
        raise InvalidRequest.because(codes.PARAMETER_INVALID, f"{name}: should be a whole number")
    return int(text) if text else default


def _shown(message: recipients.ShownMessage, number: str) -> Mapping[str, Any]:
    """Return a message as the API describes it. `text` joins the lines that a person reads.

    number: recipient that shows the message; empty for one whose number is not visible
    """
    described: dict[str, Any] = {
        "id": message.id,
        "wamid": wamid.encode(message.id, number),
        "position": message.position,
        "from": message.sender,
        "timestamp": str(message.at // 1000),
        "type": message.type,
        "text": "\n".join(message.lines),
        "choices": message.choices,
    }
    if message.content is not None:
        described["content"] = message.content
    if message.group:
        described["group_id"] = message.group
    return described


def _described(fault: Fault) -> Mapping[str, Any]:
    described: dict[str, Any] = msgspec.to_builtins(fault)
    return described
