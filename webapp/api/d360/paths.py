"""Paths of requests with a key: calls that v1 lacks, and those of the Cloud API without the number."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping

from fastapi import Request, Response

from tidings.wire.cloud.identity import NumberIdentity, ObjectKind
from webapp.api.cloud.endpoints import EDGES, name_of
from webapp.api.d360 import templates, webhook
from webapp.auth.tokens import Caller

Call = Callable[[Request, Caller], Awaitable[Response]]

# Health of the number that a key stands for: in the Cloud API a field of the number.
HEALTH, HEALTH_FIELDS, V1_HEALTH = "/health_status", b"fields=health_status", "/v1/health"

_CALLS: Mapping[tuple[str, str], Call] = {
    **{
        (method, path): call
        for path in (webhook.PATH, webhook.WABA_PATH)
        for method, call in (("GET", webhook.show), ("POST", webhook.change), ("DELETE", webhook.delete))
    },
    ("GET", templates.PATH): templates.list_page,
    ("POST", templates.PATH): templates.create,
}


def find_call(method: str, path: str) -> tuple[Call, str] | None:
    """Return the call of 360dialog's own API for a request, and its route with placeholders; `None` for requests of v1
    and of the Cloud API.
    """
    found = _CALLS.get((method, path))
    if found is not None:
        return found, path
    if method == "DELETE" and path.startswith(f"{templates.PATH}/"):
        return templates.delete, f"{templates.PATH}/{{name}}"
    return None


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
