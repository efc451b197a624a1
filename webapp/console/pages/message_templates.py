"""Templates: list, preview, editor, import, and the decisions of a review in installations for tests."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tidings.storage.business.templates import Key, TemplateRow
from tidings.wire.codes import NOT_FOUND
from webapp.api.templates import decisions
from webapp.api.templates.decisions import ImpossibleDecision
from webapp.api.templates.importing import Import
from webapp.api.templates.review import EditRefused
from webapp.api.templates.schemas import Definition
from webapp.api.templates.service import Templates
from webapp.console.page_request import PageRequest, Result, redirect
from webapp.console.pages.template_preview import preview
from webapp.console.parts import FaultCount
from webapp.console.render import pages
from webapp.console.render.pages import PageContent
from webapp.http import bodies, dependencies
from webapp.http.errors import APIError, InvalidRequest, UnknownPath

PATH = "/console/templates"
CATEGORIES = ("UTILITY", "MARKETING", "AUTHENTICATION")
PARAMETER_FORMATS = ("POSITIONAL", "NAMED")
FIELDS = ("name", "language", "category", "parameter_format", "components")
_DECISIONS: Mapping[str, Callable[[TemplateRow, int], TemplateRow]] = {
    "approve": lambda template, now: decisions.approve(template),
    "reject": lambda template, now: decisions.reject(template, None),
    "pause": decisions.pause,
}
_EXAMPLE = [{"type": "BODY", "text": "Hello {{1}}, your order comes on {{2}}."}]


async def show_list(page: PageRequest) -> Result:
    """Show all templates of the number."""
    return await _list(page, "", "")


async def import_all(page: PageRequest) -> Result:
    """Import an export of the Graph API."""
    given = page.form.raw("export")
    try:
        value = bodies.parse(given.encode())
        wanted = bodies.check(Import, {**_object(value), "replace": page.form.is_set("replace")})
        kept = await page.part(Templates).import_all(page.caller, wanted)
    except APIError as error:
        return await _list(page, "; ".join(problem.details for problem in error.problems[:5]), given)
    return redirect(PATH, {"imported": str(len(kept))})


async def show_one(page: PageRequest) -> Result:
    """Show one template with its preview."""
    return _page_of(page, await _require(page), "")


async def change(page: PageRequest) -> Result:
    """Save the components of a template, with the checks and limits of an edit over the API."""
    template = await _require(page)
    service = page.part(Templates)
    try:
        wanted = _definition(page, template.name, template.language, template.namespace)
        row = wanted.row(template.account, template.created_at)
        await service.change(page.caller, template.key, lambda stored, now: service.review.edit(stored, row, now))
    except (APIError, EditRefused, ValueError) as error:
        return _page_of(page, template, _words(error))
    return redirect(_path(template.key))


async def decide(page: PageRequest) -> Result:
    """Approve, reject or pause a template, as a reviewer does. Raises `UnknownPath` outside the test mode."""
    if not _is_testing(page):
        raise UnknownPath(page.request.scope["path"])
    template = await _require(page)
    chosen = _DECISIONS.get(page.form.text("decision"))
    if chosen is None:
        return redirect(_path(template.key))
    try:
        await page.part(Templates).change(page.caller, template.key, chosen)
    except ImpossibleDecision as error:
        return _page_of(page, template, str(error))
    return redirect(_path(template.key))


async def delete(page: PageRequest) -> Result:
    """Delete one language of a template, after its name was typed."""
    template = await _require(page)
    if page.form.text("typed") != template.name:
        return _page_of(page, template, pages.text("template", "name_differs"))
    await page.part(Templates).delete(page.caller, template.name, template.language, template.namespace)
    return redirect(PATH)


async def show_new(page: PageRequest) -> Result:
    """Show the form for a new template."""
    values = {"name": "", "language": "en_US", "category": "UTILITY", "parameter_format": "POSITIONAL"}
    return _new({**values, "components": _written(_EXAMPLE)}, "")


async def create(page: PageRequest) -> Result:
    """Create a template, with the checks of the API."""
    given = {name: page.form.raw(name) for name in FIELDS}
    try:
        wanted = _definition(page, page.form.text("name"), page.form.text("language"), None)
        made = await page.part(Templates).create(page.caller, wanted)
    except (APIError, ValueError) as error:
        return _new(given, _words(error))
    return redirect(_path(made.key))


async def check(page: PageRequest) -> Result:
    """Show whether the API would accept a template, with its preview. The editor requests it while one types."""
    problem, shown = "", preview([])
    try:
        wanted = _definition(page, page.form.text("name"), page.form.text("language"), None)
        shown = preview(wanted.row(page.caller.account, 0).components)
    except (APIError, ValueError) as error:
        problem = _words(error)
    return PageContent("template_check.html", {"problem": problem, "preview": shown})


async def _list(page: PageRequest, problem: str, given: str) -> Result:
    found = await page.part(Templates).list(page.caller)
    imported = page.query.text("imported")
    values = {
        "rows": [(row, _path(row.key)) for row in sorted(found, key=lambda row: (row.name, row.language))],
        "problem": problem,
        "given": given,
        "imported": imported if imported.isdigit() else "",
    }
    return PageContent("templates.html", values, 400 if problem else 200)


def _page_of(page: PageRequest, template: TemplateRow, problem: str) -> PageContent:
    given = page.form.raw("components")
    values = {
        "template": template,
        "path_of": _path(template.key),
        "preview": preview(template.components),
        "components": given or _written(template.components),
        "category": page.form.text("category") or template.category,
        "parameter_format": page.form.text("parameter_format") or template.parameter_format,
        "categories": CATEGORIES,
        "parameter_formats": PARAMETER_FORMATS,
        "problem": problem,
        "is_decidable": _is_testing(page),
    }
    return PageContent("template.html", values, 400 if problem else 200)


def _new(given: Mapping[str, str], problem: str) -> PageContent:
    values = {
        "fields": given,
        "categories": CATEGORIES,
        "parameter_formats": PARAMETER_FORMATS,
        "problem": problem,
    }
    return PageContent("template_new.html", values, 400 if problem else 200)


async def _require(page: PageRequest) -> TemplateRow:
    key = (page.params["namespace"], page.params["name"], page.params["language"])
    for template in await page.part(Templates).list(page.caller):
        if template.key == key:
            return template
    _, name, language = key
    raise InvalidRequest.because(
        NOT_FOUND, pages.text("errors", "no_template", template=name[:100], language=language[:16])
    )


def _definition(page: PageRequest, name: str, language: str, namespace: str | None) -> Definition:
    """Return the definition in a form. Raises `APIError`, and `ValueError` when the components are not JSON."""
    document: dict[str, Any] = {
        "name": name,
        "language": language,
        "category": page.form.text("category"),
        "parameter_format": page.form.text("parameter_format"),
        "components": bodies.parse(page.form.raw("components").encode()),
    }
    if namespace is not None:
        document["namespace"] = namespace
    return bodies.check(Definition, document)


def _path(key: Key) -> str:
    namespace, name, language = key
    return f"{PATH}/{namespace}/{name}/{language}"


def _written(components: Sequence[Mapping[str, Any]]) -> str:
    return json.dumps(components, indent=2, ensure_ascii=False)


def _object(value: object) -> Mapping[str, Any]:
    """Return an export: a list of templates counts as one."""
    if isinstance(value, dict):
        return value
    return {"data": value}


def _words(error: Exception) -> str:
    if isinstance(error, APIError):
        return "; ".join(problem.details for problem in error.problems[:5])
    return pages.text("template", "invalid_json", problem=str(error)) if isinstance(error, ValueError) else str(error)


def _is_testing(page: PageRequest) -> bool:
    return FaultCount in dependencies.parts_of(page.request)
