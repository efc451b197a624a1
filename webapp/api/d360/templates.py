"""`/v1/configs/templates` in 360dialog's format: pages of `waba_templates`, with the status in lower case."""

from __future__ import annotations

from collections.abc import Mapping
from operator import itemgetter
from typing import Any
from urllib.parse import parse_qs

import msgspec
from fastapi import Request, Response

from tidings.storage.business.templates import NO_REASON, TemplateRow
from tidings.wire.cloud.identity import template_id
from tidings.wire.codes import PARAMETER_INVALID
from webapp.api.d360 import responses
from webapp.api.templates.schemas import Definition
from webapp.api.templates.service import Templates
from webapp.auth.tokens import Caller
from webapp.http import bodies, dependencies
from webapp.http.bodies import BodyLimit
from webapp.http.errors import AdministratorRequired, InvalidRequest

PATH = "/v1/configs/templates"
MAX_LIMIT = 1_000
MAX_WANTED = 100  # values of `filters`
FIELDS = ("id", "name", "language", "status", "category", "namespace", "rejected_reason", "created_at")
"""Fields to filter and to sort by."""


def describe(template: TemplateRow, *, status: str = "") -> dict[str, Any]:
    """Return a template in 360dialog's format.

    status: the shown one; empty for that of the template
    """
    return {
        "id": template_id(template.account, template.namespace, template.name, template.language),
        "name": template.name,
        "language": template.language,
        "status": status or template.status.lower(),
        "category": template.category,
        "namespace": template.namespace,
        "components": template.components,
        "rejected_reason": template.rejected_reason or NO_REASON,
        "created_at": template.created_at // 1000,
    }


async def list_page(request: Request, caller: Caller) -> Response:
    """Return a page of the templates that pass `filters`, in the order of `sort`."""
    _require_admin(caller)
    query = parse_qs(request.scope["query_string"].decode("latin-1"))
    limit, offset = _number(query, "limit", MAX_LIMIT), _number(query, "offset", 0)
    filters, sort = _filters(query), _sort(query)
    found = [describe(template) for template in await dependencies.find(request, Templates).list(caller)]
    found = [template for template in found if _passes(template, filters)]
    for name in reversed(sort):
        found.sort(key=itemgetter(name.removeprefix("-")), reverse=name.startswith("-"))
    page = found[offset : offset + min(limit, MAX_LIMIT)]
    shown = {"waba_templates": page, "count": len(page), "total": len(found)}
    return responses.success({**shown, "filters": filters, "limit": limit, "offset": offset, "sort": sort})


def _passes(template: Mapping[str, Any], filters: Mapping[str, Any]) -> bool:
    """Return whether a template has one of the wanted values in each field; upper and lower case are the same."""
    return all(
        str(template[name]).lower()
        in [str(value).lower() for value in (wanted if isinstance(wanted, list) else [wanted])]
        for name, wanted in filters.items()
    )


def _filters(query: Mapping[str, list[str]]) -> Mapping[str, Any]:
    """Return the wanted value, or list of values, by field."""
    try:
        filters = msgspec.json.decode(query.get("filters", ["{}"])[0], type=dict[str, str | int | list[str | int]])
    except msgspec.DecodeError:
        raise InvalidRequest.because(
            PARAMETER_INVALID, 'filters: should be a JSON object such as {"status":"approved"}'
        ) from None
    named = {_field("filters", name): wanted for name, wanted in filters.items()}
    if sum(len(wanted) if isinstance(wanted, list) else 1 for wanted in named.values()) > MAX_WANTED:
        raise InvalidRequest.because(PARAMETER_INVALID, f"filters: should have at most {MAX_WANTED} values")
    return named


def _sort(query: Mapping[str, list[str]]) -> list[str]:
    """Return the fields to sort by, each with `-` before it for the reverse order."""
    given = [name.strip() for text in query.get("sort", ()) for name in text.strip("[]").replace('"', "").split(",")]
    named = [("-" if name.startswith("-") else "") + _field("sort", name.removeprefix("-")) for name in given if name]
    return list(dict.fromkeys(named))


def _field(parameter: str, given: str) -> str:
    """Return the name of a field, which may have the name of a table before it."""
    name = given.rpartition(".")[2]
    if name not in FIELDS:
        raise InvalidRequest.because(PARAMETER_INVALID, f"{parameter}: should name fields among {', '.join(FIELDS)}")
    return name


def _number(query: Mapping[str, list[str]], name: str, default: int) -> int:
    text = query.get(name, [str(default)])[0]
    if not (text.isascii() and text.isdigit() and len(text) <= 9):
        raise InvalidRequest.because(PARAMETER_INVALID, f"{name}: should be a whole number")
    return int(text)


async def create(request: Request, caller: Caller) -> Response:
    _require_admin(caller)
    limit = dependencies.find(request, BodyLimit).bytes
    given = await bodies.read_json(request, limit=limit)
    # The review decides about the status.
    wanted = {name: value for name, value in given.items() if name != "status"} if isinstance(given, dict) else given
    made = await dependencies.find(request, Templates).create(caller, bodies.check(Definition, wanted))
    return responses.success(describe(made, status="submitted"), 201)


async def delete(request: Request, caller: Caller) -> Response:
    _require_admin(caller)
    name = request.scope["path"].removeprefix(f"{PATH}/")
    if not name.isascii() or "\0" in name or len(name) > 512:
        raise InvalidRequest.because(PARAMETER_INVALID, "name: should be the name of a template")
    await dependencies.find(request, Templates).delete(caller, name, None, None)
    return responses.success({"meta": {"http_code": 200, "success": True}})


def _require_admin(caller: Caller) -> None:
    if not caller.is_admin:
        raise AdministratorRequired("the key of an administrator is required")
