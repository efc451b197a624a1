"""Message templates: `/{waba-id}/message_templates` and `GET /{template-id}`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from fastapi import Response

from tidings.storage.business.templates import TemplateRow
from tidings.wire.cloud.identity import ObjectKind, derived_id
from tidings.wire.codes import ALREADY_EXISTS
from webapp.api.cloud import errors, fields, handles
from webapp.api.cloud.calls import CloudCall, text_of
from webapp.api.cloud.lists import listed
from webapp.api.templates.schemas import Definition
from webapp.api.templates.service import Templates
from webapp.http import bodies
from webapp.http.errors import InvalidRequest

NODE_TYPE = "WhatsAppMessageTemplate"
EXISTS, UNKNOWN = 2388043, 2593002  # subcodes
MAX_IDS = 100
EDITABLE = ("APPROVED", "REJECTED", "PAUSED")  # statuses
SHOWN_LIMIT = 6_000  # templates; that of a verified portfolio, which is not enforced
_DEFAULT = ("name", "parameter_format", "components", "language", "status", "category", "id")
_OPTIONAL = (
    "previous_category",
    "sub_category",
    "quality_score",
    "rejected_reason",
    "message_send_ttl_seconds",
    "library_template_name",
    "cta_url_link_tracking_opted_out",
    "correct_category",
    "degrees_of_freedom_spec",
)
# Fields of a definition. Those of v1 that set the status or the namespace are ignored.
_DEFINED = ("name", "language", "category", "parameter_format", "components")


def id_of(template: TemplateRow) -> str:
    return derived_id(ObjectKind.TEMPLATE, template.account, template.namespace, template.name, template.language)


def describe(template: TemplateRow) -> dict[str, Any]:
    """Return all fields of a template."""
    return {
        "name": template.name,
        "parameter_format": template.parameter_format,
        "components": template.components,
        "language": template.language,
        "status": template.status,
        "category": template.category,
        "id": id_of(template),
    }


async def list_all(call: CloudCall) -> Response:
    call.require_admin()
    query = call.query()
    found = [template for template in await call.find(Templates).list(call.caller) if _matches(template, query)]
    entries = [
        fields.select(
            describe(template), query.get("fields"), node_type=NODE_TYPE, default=_DEFAULT, optional=_OPTIONAL
        )
        for template in found
    ]
    page = listed(entries, [id_of(template) for template in found], call)
    asked = query.get("summary")
    if isinstance(asked, str) and asked:
        counts = {
            "total_count": len(found),
            "message_template_count": len(found),
            "message_template_limit": SHOWN_LIMIT,
            "are_translations_complete": True,
        }
        page["summary"] = fields.select(counts, asked, node_type="WhatsAppMessageTemplateSummary", default=())
    return call.answer(page)


def _matches(template: TemplateRow, query: Mapping[str, Any]) -> bool:
    """Return whether a template passes all filters, which ignore case. A filter may list several values."""
    words = f"{template.name} {template.components}".lower()
    checks: Mapping[str, Callable[[str], bool]] = {
        "name": lambda value: value in template.name,
        "name_or_content": lambda value: value in words,
        "status": lambda value: value == template.status.lower(),
        "category": lambda value: value == template.category.lower(),
        "language": lambda value: value == template.language.lower(),
        "quality_score": lambda value: value == "unknown",
    }
    return all(
        any(check(value) for value in values) for name, check in checks.items() if (values := _values(query.get(name)))
    )


def _values(given: object) -> Sequence[str]:
    if isinstance(given, list):
        return [str(value).lower() for value in given]
    return [value.strip().lower() for value in given.split(",")] if isinstance(given, str) and given else ()


async def show(call: CloudCall) -> Response:
    template = await _find(call)
    if template is None:
        raise call.unsupported()
    asked = call.query().get("fields")
    return call.answer(
        fields.select(describe(template), asked, node_type=NODE_TYPE, default=_DEFAULT, optional=_OPTIONAL)
    )


async def _find(call: CloudCall) -> TemplateRow | None:
    found = await call.find(Templates).list(call.caller)
    return next((template for template in found if id_of(template) == call.target.node), None)


async def create(call: CloudCall) -> Response:
    """Create a template. It is approved at once."""
    call.require_admin()
    parameters = await call.parameters()
    for name in ("name", "language", "category", "components"):
        if parameters.get(name) is None:
            raise errors.missing(name)
    definition = bodies.check(Definition, {name: parameters[name] for name in _DEFINED if name in parameters})
    await handles.check_samples(call, parameters["components"])
    try:
        created = await call.find(Templates).create(call.caller, definition)
    except InvalidRequest as error:
        if error.problems[0].code != ALREADY_EXISTS:
            raise
        title = "Content in this language already exists"
        words = f"There is already content in {definition.language} for the template {definition.name}."
        raise _refusal(EXISTS, title, words) from None
    return call.answer({"id": id_of(created), "status": created.status, "category": created.category})


async def edit(call: CloudCall) -> Response:
    """Replace the components of a template, or its category unless it is approved."""
    call.require_admin()
    stored = await _find(call)
    if stored is None:
        raise call.unsupported()
    parameters = await call.parameters()
    changes = {name: parameters[name] for name in ("category", "components") if parameters.get(name) is not None}
    if not changes:
        raise errors.missing("components")
    if stored.status not in EDITABLE:
        raise errors.invalid(f"a template with the status {stored.status} cannot be edited")
    definition = bodies.check(Definition, {**describe(stored), "namespace": stored.namespace, **changes})
    await handles.check_samples(call, changes.get("components"))
    if definition.category != stored.category and stored.status == "APPROVED":
        raise errors.invalid("category: that of an approved template cannot be changed")
    if not await call.find(Templates).replace(call.caller, definition.row(stored.account, stored.created_at)):
        raise call.unsupported()
    return call.success()


async def delete(call: CloudCall) -> Response:
    """Delete a template by its name in every language, or in the language that an id names."""
    call.require_admin()
    parameters = await call.parameters()
    name, ids = text_of(parameters, "name"), _ids(parameters)
    if not name and not ids:
        raise errors.missing("name")
    templates = call.find(Templates)
    found = [
        template
        for template in await templates.list(call.caller)
        if (not name or template.name == name) and (not ids or id_of(template) in ids)
    ]
    if not found:
        shown = name or ids[0]
        words = f"The message template {shown[:512]} wasn't found for this account."
        raise _refusal(UNKNOWN, "Message Template Not Found", words)
    for template in found:
        try:
            await templates.delete(call.caller, template.name, template.language, template.namespace)
        except InvalidRequest:
            # Another request has deleted it since.
            continue
    return call.success()


def _ids(parameters: Mapping[str, Any]) -> Sequence[str]:
    several = parameters.get("hsm_ids")
    if isinstance(several, list):
        if len(several) > MAX_IDS:
            raise errors.invalid(f"hsm_ids: has {len(several)} ids, the limit is {MAX_IDS}")
        return [str(one) for one in several]
    one = text_of(parameters, "hsm_id")
    return [one] if one else []


def _refusal(subcode: int, title: str, words: str) -> errors.GraphError:
    return errors.GraphError(
        "Invalid parameter",
        extra={"error_subcode": subcode, "is_transient": False, "error_user_title": title, "error_user_msg": words},
    )
