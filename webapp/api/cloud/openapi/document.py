"""OpenAPI document of the Cloud API: one operation for each endpoint of the façade."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from tidings import __version__
from tidings.wire.cloud.identity import derive
from webapp.api.cloud import paths
from webapp.api.cloud.endpoints import ENDPOINTS
from webapp.api.cloud.facade import route_of
from webapp.api.cloud.openapi import operations, schemas
from webapp.api.cloud.openapi.operations import CallDescription

_EXAMPLE = derive("15550000000")
# Examples of path parameters, by name: the ids of the default number.
_EXAMPLES: Mapping[str, str] = {
    "phone-number-id": _EXAMPLE.phone_number_id,
    "waba-id": _EXAMPLE.waba_id,
    "app-id": _EXAMPLE.app_id,
    "business-id": _EXAMPLE.business_id,
    "template-id": "5000000000000000",
    "media-id": "1000000000000000000",
}
_PARAMETER = re.compile(r"\{([a-z-]+)\}")
_DESCRIPTION = """\
The WhatsApp Cloud API, served by Tidings. Paths are those of the versions v20.0 to v99.0; the ids of a number are in
`docs/cloud-api.md`, and its token is that of `POST /v1/users/login`."""


@functools.cache
def render() -> bytes:
    """Return the document as JSON."""
    return msgspec.json.encode(build())


def build() -> dict[str, Any]:
    """Return the document."""
    described: dict[str, dict[str, Any]] = {}
    for kind, edge, method in ENDPOINTS:
        route = route_of(kind, edge)
        call = operations.CALLS.get((kind, edge, method)) or operations.undescribed(method, route)
        described.setdefault(route, {})[method.lower()] = _operation(kind, route, method, call)
    return {
        "openapi": "3.1.0",
        "info": {"title": "Tidings: Cloud API", "version": __version__, "description": _DESCRIPTION},
        "servers": [{"url": f"/{paths.DEFAULT}"}],
        "paths": described,
        "components": {
            "schemas": schemas.components(),
            "securitySchemes": {
                "token": {"type": "http", "scheme": "bearer", "description": "A token of `POST /v1/users/login`"}
            },
        },
    }


def _operation(kind: str, route: str, method: str, call: CallDescription) -> dict[str, Any]:
    found: dict[str, Any] = {
        "summary": call.summary,
        "operationId": re.sub(r"[^a-z]+", "_", f"{method.lower()}{route}").strip("_"),
        "tags": [kind],
        "security": [{"token": []}],
        "parameters": list(_parameters(route, call)),
        "responses": {
            "200": {"description": "The call was carried out", "content": _content(call)},
            "4XX": {"description": "The call was refused", "content": _json(schemas.reference(schemas.ERROR))},
            "5XX": {"description": "The call failed", "content": _json(schemas.reference(schemas.ERROR))},
        },
    }
    if call.is_bytes:
        found["responses"]["206"] = {"description": "The part in `Range`", "content": _content(call)}
    if call.form is not None:
        found["requestBody"] = {"required": True, "content": {"multipart/form-data": {"schema": call.form}}}
    elif call.body is not None:
        found["requestBody"] = {"required": "required" in call.body or "$ref" in call.body, "content": _json(call.body)}
    return found


def _parameters(route: str, call: CallDescription) -> Iterator[dict[str, Any]]:
    for name in _PARAMETER.findall(route):
        example = _EXAMPLES.get(name, "1")
        yield {"name": name, "in": "path", "required": True, "schema": schemas.DIGITS, "example": example}
    for name, schema in call.query.items():
        yield {"name": name, "in": "query", "required": name in call.required, "schema": schema}


def _content(call: CallDescription) -> dict[str, Any]:
    return {"*/*": {"schema": {"type": "string", "format": "binary"}}} if call.is_bytes else _json(call.response)


def _json(schema: schemas.Schema) -> dict[str, Any]:
    return {"application/json": {"schema": schema}}
