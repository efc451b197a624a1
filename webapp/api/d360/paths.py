"""Paths of requests with a key: calls that v1 lacks, and those of the Cloud API without the number."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence

from fastapi import Request, Response

from tidings.wire.cloud.identity import NumberIdentity, ObjectKind
from webapp.api.cloud.endpoints import EDGES, name_of
from webapp.api.d360 import templates, webhook
from webapp.auth.tokens import Caller
from webapp.http.errors import METHODS, MethodNotAllowed

Call = Callable[[Request, Caller], Awaitable[Response]]

# Health of the number that a key stands for: in the Cloud API a field of the number.
HEALTH, HEALTH_FIELDS, V1_HEALTH = "/health_status", b"fields=health_status", "/v1/health"

_TEMPLATE, _IMPORT = f"{templates.PATH}/{{name}}", f"{templates.PATH}/import"

_WEBHOOK: Mapping[str, Call] = {"GET": webhook.show, "POST": webhook.change, "DELETE": webhook.delete}
_CALLS: Mapping[str, Mapping[str, Call]] = {
    webhook.PATH: _WEBHOOK,
    webhook.WABA_PATH: _WEBHOOK,
    templates.PATH: {"GET": templates.list_page, "POST": templates.create},
    _TEMPLATE: {"DELETE": templates.delete},
    HEALTH: {},
}
"""Calls of 360dialog's own API, by route and method."""

_PASSED_ON: Mapping[str, Sequence[str]] = {HEALTH: ("GET",), _TEMPLATE: ("PATCH",), _IMPORT: ("POST", "PATCH")}
"""Further methods of these routes: calls of v1, and the health of the Cloud API."""


def find_call(method: str, path: str) -> tuple[Call, str] | None:
    """Return the call of 360dialog's own API for a request, and its route with placeholders; `None` for requests of v1
    and of the Cloud API.

    Of a path of its API with another method, the call raises `MethodNotAllowed`.
    """
    route = _route_of(path)
    if route is None:
        return None
    passed_on = _PASSED_ON.get(path, _PASSED_ON.get(route, ()))
    if method in passed_on:
        return None
    return _CALLS[route].get(method) or _refusal({*_CALLS[route], *passed_on}), route


def _route_of(path: str) -> str | None:
    """Return the route of 360dialog's own API that serves a path; `None` for another path."""
    if path in _CALLS:
        return path
    prefix, _, name = path.rpartition("/")
    return _TEMPLATE if name and prefix == templates.PATH else None


def _refusal(methods: Collection[str]) -> Call:
    """Return the call that refuses a method.

    methods: accepted ones
    """
    allowed = ", ".join(name for name in METHODS if name in methods or (name == "HEAD" and "GET" in methods))

    async def refuse(request: Request, caller: Caller) -> Response:
        raise MethodNotAllowed(request.method, request.scope["path"], allowed)

    return refuse


def is_health(method: str, path: str) -> bool:
    return (method, path) == ("GET", HEALTH)


def with_node(method: str, path: str, identity: NumberIdentity) -> str:
    """Return a path of the Cloud API with the number or WABA that the key stands for; any other path as it is."""
    if is_health(method, path):
        return f"/{identity.phone_number_id}"
    edge = name_of(path[1:])
    if edge and (ObjectKind.NUMBER, edge) in EDGES:
        return f"/{identity.phone_number_id}{path}"
    if edge and (ObjectKind.WABA, edge) in EDGES:
        return f"/{identity.waba_id}{path}"
    return path
