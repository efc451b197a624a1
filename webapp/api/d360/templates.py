"""`/v1/configs/templates` in 360dialog's format: pages of `waba_templates`, with the status in lower case."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import parse_qs

from fastapi import Request, Response

from tidings.storage.business.templates import NO_REASON, TemplateRow
from tidings.wire.cloud.identity import template_id
from tidings.wire.codes import PARAMETER_INVALID
from webapp.api.d360 import answers
from webapp.api.templates.schemas import Definition
from webapp.api.templates.service import Templates
from webapp.auth.tokens import Caller
from webapp.http import bodies, dependencies
from webapp.http.bodies import BodyLimit
from webapp.http.errors import AdministratorRequired, InvalidRequest

PATH = "/v1/configs/templates"
MAX_LIMIT = 1_000


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
    _require_admin(caller)
    query = parse_qs(request.scope["query_string"].decode("latin-1"))
    limit, offset = _number(query, "limit", MAX_LIMIT), _number(query, "offset", 0)
    found = await dependencies.find(request, Templates).list(caller)
    page = found[offset : offset + min(limit, MAX_LIMIT)]
    shown = {"waba_templates": [describe(template) for template in page], "count": len(page), "total": len(found)}
    return answers.answer({**shown, "filters": {}, "limit": limit, "offset": offset, "sort": []})


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
    return answers.answer(describe(made, status="submitted"), 201)


async def delete(request: Request, caller: Caller) -> Response:
    _require_admin(caller)
    name = request.scope["path"].removeprefix(f"{PATH}/")
    if not name.isascii() or "\0" in name or len(name) > 512:
        raise InvalidRequest.because(PARAMETER_INVALID, "name: should be the name of a template")
    await dependencies.find(request, Templates).delete(caller, name, None, None)
    return answers.answer({"meta": {"http_code": 200, "success": True}})


def _require_admin(caller: Caller) -> None:
    if not caller.is_admin:
        raise AdministratorRequired("the key of an administrator is required")
