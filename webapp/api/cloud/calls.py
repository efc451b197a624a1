"""One call of the Cloud API: the request, its caller, the object that it names, and its parameters."""

from __future__ import annotations

import contextlib
import dataclasses
import re
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeVar
from urllib.parse import parse_qsl

from fastapi import Request, Response

from tidings.wire.cloud.codes import PERMISSION
from tidings.wire.cloud.identity import IdentityDirectory, NumberIdentity
from webapp.api.cloud import errors, responses
from webapp.api.cloud.paths import Target
from webapp.api.cloud.responses import UNUSED, CallShare
from webapp.auth.tokens import Caller
from webapp.http import bodies, headers
from webapp.http.bodies import BodyLimit
from webapp.http.errors import InvalidRequest

FORM = b"application/x-www-form-urlencoded"
FORM_READ = "cloud_form"  # key of a form that is already read, in the state of a request
_MAX_FIELDS = 200
_LIST = re.compile(r"(.+)\[\d*\]")

Part = TypeVar("Part")
Handler = Callable[["CloudCall"], Awaitable[Response]]


@dataclasses.dataclass(slots=True)
class CloudCall:
    """Call that a handler carries out."""

    request: Request
    target: Target
    trace: str  # id of the request in the response
    caller: Caller
    identity: NumberIdentity  # ids of the caller's number
    directory: IdentityDirectory
    parts: Mapping[type, Any]  # parts of the Webapp, by their class
    share: CallShare = UNUSED  # used share of the management calls of an hour

    @property
    def request_id(self) -> str:
        return str(self.request.scope["state"]["request_id"])

    @property
    def api_url(self) -> str:
        """Return the URL of the API without a path, on the host of the request."""
        return str(self.request.url.replace(path="", query="", fragment=""))

    def find(self, kind: type[Part]) -> Part:
        """Return the part of the Webapp of this class."""
        found: Part = self.parts[kind]
        return found

    def respond(self, value: Any, *, kind: str = responses.MANAGEMENT) -> Response:
        """Return a success response.

        kind: kind of calls whose usage the header `x-business-use-case-usage` reports
        """
        waba_id = self.identity.waba_id
        is_unused = self.share is UNUSED or kind != responses.MANAGEMENT
        return responses.success(
            value,
            self.target.version,
            self.trace,
            usage=responses.usage_of(waba_id, kind) if is_unused else responses.usage_of(waba_id, kind, self.share),
            is_get=self.request.scope["method"] == "GET",
        )

    def success(self, *, kind: str = responses.MANAGEMENT) -> Response:
        return self.respond({"success": True}, kind=kind)

    def unsupported(self) -> errors.GraphError:
        """Return the error of an object or call that does not exist for this caller."""
        return errors.unsupported(self.request.scope["method"], self.target.node)

    def require_admin(self) -> None:
        """Raise `GraphError` unless the token belongs to an administrator."""
        if not self.caller.is_admin:
            raise errors.coded(PERMISSION)

    def query(self) -> dict[str, Any]:
        """Return the parameters in the query."""
        return read_form(self.request.scope["query_string"])

    async def parameters(self) -> dict[str, Any]:
        """Return the parameters of the call. Those in the body take precedence over those in the query.

        Raises `InvalidRequest`.
        """
        body = await self.body()
        return {**self.query(), **body} if self.request.scope["query_string"] else body

    async def body(self) -> dict[str, Any]:
        """Return the parameters in the body: JSON or a form. A body that is no object has none.

        Raises `InvalidRequest`.
        """
        limit = self.find(BodyLimit).bytes
        if is_form(self.request):
            # The check of the token may have read the form already.
            raw = self.request.scope["state"].get(FORM_READ)
            return read_form(await bodies.receive(self.request, limit) if raw is None else raw)
        value = await bodies.read_json(self.request, limit=limit)
        return value if isinstance(value, dict) else {}


def is_form(request: Request) -> bool:
    """Return whether the body is announced as a form without files."""
    return (headers.find(request.scope, b"content-type") or b"").lower().startswith(FORM)


def read_form(raw: bytes) -> dict[str, Any]:
    """Return the fields of a form or a query.

    A field with an index (`websites[0]`, `websites[]`) becomes a list, and a value that is a JSON object or list is
    decoded. Raises `GraphError` for too many fields.
    """
    try:
        pairs = parse_qsl(raw.decode("utf-8", "replace"), keep_blank_values=True, max_num_fields=_MAX_FIELDS)
    except ValueError:
        raise errors.invalid(f"the form has more than {_MAX_FIELDS} fields") from None
    found: dict[str, Any] = {}
    for name, text in pairs:
        value: Any = text
        if text[:1] in ("{", "["):
            with contextlib.suppress(InvalidRequest):
                value = bodies.parse(text.encode())
        listed = _LIST.fullmatch(name)
        if listed is None:
            found[name] = value
        else:
            kept = found.setdefault(listed[1], [])
            if isinstance(kept, list):
                kept.append(value)
    return found


def text_of(parameters: Mapping[str, Any], name: str) -> str:
    """Return a parameter as text; empty when it is absent or no simple value."""
    value = parameters.get(name)
    if isinstance(value, str):
        return value
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else ""
