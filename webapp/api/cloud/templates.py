"""Message templates: `/{waba-id}/message_templates`, `/{template-id}` and `/{template-id}/unpause`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from fastapi import Response

from tidings.storage.business.templates import APPROVED, NO_REASON, PAUSED, REJECTED, UNRATED, TemplateRow
from tidings.wire.cloud.codes import MANAGEMENT_RATE
from tidings.wire.codes import ALREADY_EXISTS
from webapp.api.cloud import errors, fields, handles, template_errors, template_ttls
from webapp.api.cloud.calls import CloudCall, text_of
from webapp.api.cloud.lists import listed
from webapp.api.templates import decisions, schemas
from webapp.api.templates.creation_limits import (
    MAX_TEMPLATES,
    CreationRefused,
    CreationsExhausted,
    NameBlocked,
)
from webapp.api.templates.review import EDITABLE, EditRefused
from webapp.api.templates.schemas import Definition
from webapp.api.templates.service import Templates
from webapp.api.templates.ttls import id_of
from webapp.http import bodies
from webapp.http.errors import InvalidRequest

NODE_TYPE = "WhatsAppMessageTemplate"
EXISTS, UNKNOWN, BEING_DELETED, TOO_MANY = 2388043, 2593002, 2388023, 2388019  # subcodes
MAX_IDS = 100
_DEFAULT = ("name", "parameter_format", "components", "language", "status", "category")
_OPTIONAL = (
    "previous_category",
    "sub_category",
    "message_send_ttl_seconds",
    "library_template_name",
    "cta_url_link_tracking_opted_out",
    "correct_category",
    "degrees_of_freedom_spec",
)


def describe(template: TemplateRow, requested: object, ttls: Mapping[str, int]) -> dict[str, Any]:
    """Return the requested fields of a template. Raises `GraphError` for an unknown one.

    requested: value of `fields`; `None` for the default fields, which are those that have a value
    ttls: times to live of messages by id of the template
    """
    rated_at = template.created_at if template.quality_at is None else template.quality_at
    described: dict[str, Any] = {
        "name": template.name,
        "parameter_format": template.parameter_format,
        "components": template.components,
        "language": template.language,
        "status": template.status,
        "category": template.category,
        "quality_score": {"score": template.quality or UNRATED, "date": rated_at // 1000},
        "rejected_reason": template.rejected_reason or NO_REASON,
        "health_status": _health(template),
        "id": id_of(template),
    }
    if template.previous_category is not None:
        described["previous_category"] = template.previous_category
    if template.next_category is not None:
        described["correct_category"] = template.next_category
    if id_of(template) in ttls:
        described[template_ttls.NAME] = template_ttls.fitting(ttls[id_of(template)], template.category)
    has_value = {
        "previous_category": template.previous_category is not None,
        "quality_score": template.quality is not None,
        "rejected_reason": template.status == REJECTED,
    }
    default = (*_DEFAULT, *(name for name, shown in has_value.items() if shown), "id")
    return fields.select(described, requested, node_type=NODE_TYPE, default=default, optional=_OPTIONAL)


def _health(template: TemplateRow) -> Mapping[str, Any]:
    able = "AVAILABLE" if template.status == APPROVED else "BLOCKED"
    entity = {"entity_type": "MESSAGE_TEMPLATE", "id": id_of(template), "can_send_message": able}
    return {"can_send_message": able, "entities": [entity]}


def _place(template: TemplateRow) -> str:
    """Return the key by which lists are sorted."""
    return "\n".join((template.name, template.language, template.namespace))


async def list_all(call: CloudCall) -> Response:
    call.require_admin()
    query = call.query()
    found = [template for template in await call.find(Templates).list(call.caller) if _matches(template, query)]
    found.sort(key=_place)
    ttls = await call.find(Templates).list_ttls(call.caller)
    entries = [describe(template, query.get("fields"), ttls) for template in found]
    page = listed(entries, [_place(template) for template in found], call)
    requested = query.get("summary")
    if isinstance(requested, str) and requested:
        counts = {
            "total_count": len(found),
            "message_template_count": len(found),
            "message_template_limit": MAX_TEMPLATES,
            "are_translations_complete": True,
        }
        page["summary"] = fields.select(counts, requested, node_type="WhatsAppMessageTemplateSummary", default=())
    return call.respond(page)


def _matches(template: TemplateRow, query: Mapping[str, Any]) -> bool:
    """Return whether a template passes all filters, which ignore case. A filter may list several values."""
    words = "\n".join((template.name, *_texts(template.components))).lower()
    checks: Mapping[str, Callable[[str], bool]] = {
        "name": lambda value: value in template.name,
        "name_or_content": lambda value: value in words,
        "status": lambda value: value == template.status.lower(),
        "category": lambda value: value == template.category.lower(),
        "language": lambda value: value == template.language.lower(),
        "quality_score": lambda value: value == (template.quality or UNRATED).lower(),
    }
    for name, check in checks.items():
        values = _values(query.get(name))
        if values and not any(map(check, values)):
            return False
    return True


def _texts(value: object) -> Iterator[str]:
    """Yield the texts of components, also those of buttons and cards, without the examples."""
    if isinstance(value, list):
        for each in value:
            yield from _texts(each)
    elif isinstance(value, dict):
        for name, each in value.items():
            if name == "text" and isinstance(each, str):
                yield each
            elif name != "example":
                yield from _texts(each)


def _values(given: object) -> Sequence[str]:
    if isinstance(given, list):
        return [str(value).lower() for value in given]
    return [value.strip().lower() for value in given.split(",")] if isinstance(given, str) and given else ()


async def show(call: CloudCall) -> Response:
    template = await _find(call)
    if template is None:
        raise call.unsupported()
    ttls = await call.find(Templates).list_ttls(call.caller)
    return call.respond(describe(template, call.query().get("fields"), ttls))


async def _find(call: CloudCall) -> TemplateRow | None:
    found = await call.find(Templates).list(call.caller)
    return next((template for template in found if id_of(template) == call.target.node), None)


async def create(call: CloudCall) -> Response:
    """Create a template. Without a review it is approved at once."""
    call.require_admin()
    parameters = await call.parameters()
    for name in ("name", "language", "category", "components"):
        if parameters.get(name) is None:
            raise errors.missing(name)
    definition = _define({name: parameters[name] for name in schemas.DEFINED if name in parameters})
    await handles.check_samples(call, parameters["components"])
    ttl = template_ttls.read(parameters, definition.category)
    try:
        created = await call.find(Templates).create(call.caller, definition, ttl=ttl, limited=True)
    except CreationRefused as refused:
        raise _refusal(refused, definition) from None
    except InvalidRequest as error:
        if error.problems[0].code != ALREADY_EXISTS:
            raise
        title = "Content in this language already exists"
        words = f"There is already content in {definition.language} for the template {definition.name}."
        raise errors.for_user(EXISTS, title, words) from None
    return call.respond({"id": id_of(created), "status": created.status, "category": created.category})


def _define(parameters: Mapping[str, Any]) -> Definition:
    """Return the definition in the parameters of a call. Raises `GraphError`."""
    try:
        return bodies.check(Definition, parameters)
    except InvalidRequest as error:
        raise template_errors.of_definition(error, parameters) from None


def _refusal(refused: CreationRefused, definition: Definition) -> errors.GraphError:
    if isinstance(refused, CreationsExhausted):
        return errors.coded(MANAGEMENT_RATE, "Too many templates were created.", retry_after=refused.wait)
    if isinstance(refused, NameBlocked):
        words = f"The template {definition.name} was deleted. Its name can be used again after 30 days."
        return errors.for_user(BEING_DELETED, "Message Template Is Being Deleted", words)
    words = f"A WhatsApp Business account can have {MAX_TEMPLATES} templates."
    return errors.for_user(TOO_MANY, "Too Many Message Templates", words)


async def edit(call: CloudCall) -> Response:
    """Replace the components of a template, its category unless it is approved, or the time to live of messages."""
    call.require_admin()
    stored = await _find(call)
    if stored is None:
        raise call.unsupported()
    parameters = await call.parameters()
    changes = {name: parameters[name] for name in ("category", "components") if parameters.get(name) is not None}
    ttl = template_ttls.read(parameters, str(changes.get("category") or stored.category).upper())
    if not changes and ttl is None:
        raise errors.missing("components")
    await handles.check_samples(call, changes.get("components"))
    templates = call.find(Templates)

    def change(present: TemplateRow, now: int) -> TemplateRow:
        if not changes and present.status in EDITABLE:
            # Another time to live needs no review.
            return present
        wanted = _define({**schemas.defined(present), **changes})
        return templates.review.edit(present, wanted.row(present.account, present.created_at), now)

    try:
        changed = await templates.change(call.caller, stored.key, change, ttl=ttl)
    except EditRefused as refused:
        raise errors.invalid(str(refused)) from None
    if changed is None:
        raise call.unsupported()
    return call.success()


async def unpause(call: CloudCall) -> Response:
    """Approve a paused template. For any other one the response has the reason why nothing was changed."""
    call.require_admin()
    stored = await _find(call)
    if stored is None:
        raise call.unsupported()
    if stored.status != PAUSED:
        return call.respond({"success": False, "reason": f"The template has the status {stored.status}."})
    if await call.find(Templates).change(call.caller, stored.key, lambda present, now: _unpaused(present)) is None:
        raise call.unsupported()
    return call.success()


def _unpaused(template: TemplateRow) -> TemplateRow:
    return decisions.approve(template) if template.status == PAUSED else template


async def delete(call: CloudCall) -> Response:
    """Delete a template by its name in every language, or in the language that an id names."""
    call.require_admin()
    parameters = await call.parameters()
    name, ids = text_of(parameters, "name"), _ids(parameters)
    if not name and not ids:
        raise errors.missing("name")
    if name and not ids and any(parameters.get(field) is not None for field in ("hsm_id", "hsm_ids")):
        # By its name alone a template is deleted in every language.
        raise errors.invalid("hsm_id, hsm_ids: should be ids of templates")
    templates = call.find(Templates)
    found = [
        template
        for template in await templates.list(call.caller)
        if (not name or template.name == name) and (not ids or id_of(template) in ids)
    ]
    if not found:
        shown = name or ids[0]
        words = f"The message template {shown[:512]} wasn't found for this account."
        raise errors.for_user(UNKNOWN, "Message Template Not Found", words)
    for template in found:
        try:
            await templates.delete(call.caller, template.name, template.language, template.namespace)
        except InvalidRequest:
            # Another request has deleted it since.
            continue
    return call.success()


def _ids(parameters: Mapping[str, Any]) -> Sequence[str]:
    several = parameters.get("hsm_ids")
    if isinstance(several, str):
        several = [one.strip() for one in several.split(",") if one.strip()]
    if isinstance(several, list):
        if len(several) > MAX_IDS:
            raise errors.invalid(f"hsm_ids: has {len(several)} ids, the limit is {MAX_IDS}")
        return [str(one) for one in several]
    one = text_of(parameters, "hsm_id")
    return [one] if one else []
