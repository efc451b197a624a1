"""Faults of the test mode, with the calls that are still to fail."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tidings.testing.faults import FaultFile, FaultTarget, TooManyFaults
from webapp.api.testing.mode import FaultRequest
from webapp.console.page_request import PageRequest, Result, redirect
from webapp.console.parts import FaultCount
from webapp.console.render import pages
from webapp.console.render.pages import PageContent
from webapp.http import bodies, dependencies
from webapp.http.errors import InvalidRequest, UnknownPath

PATH = "/console/faults"
FIELDS = ("target", "times", "every", "http", "code", "retry_after_s")


async def show(page: PageRequest) -> Result:
    """Show the faults, and the form for another one."""
    return _page(page, {"target": "messages", "times": "1", "code": "131000"}, "")


async def add(page: PageRequest) -> Result:
    """Add a fault, with the checks of `POST /tidings/faults`."""
    given = {name: page.form.text(name) for name in FIELDS}
    numbers: dict[str, Any] = {name: value for name, value in given.items() if value}
    try:
        bodies.check(FaultRequest, numbers).add_to(_faults(page))
    except InvalidRequest as error:
        return _page(page, given, "; ".join(problem.details for problem in error.problems))
    except TooManyFaults:
        return _page(page, given, pages.text("faults", "too_many"))
    return redirect(PATH)


async def delete(page: PageRequest) -> Result:
    """Delete one fault."""
    given = page.form.text("id")
    if given.isascii() and given.isdigit() and len(given) <= 9:
        _faults(page).delete(int(given))
    return redirect(PATH)


async def clear(page: PageRequest) -> Result:
    """Delete all faults."""
    _faults(page).clear()
    return redirect(PATH)


def _page(page: PageRequest, fields: Mapping[str, str], problem: str) -> PageContent:
    values = {
        "faults": _faults(page).list_all(),
        "targets": [target.value for target in FaultTarget],
        "fields": {name: fields.get(name, "") for name in FIELDS},
        "problem": problem,
    }
    return PageContent("faults.html", values, 400 if problem else 200)


def _faults(page: PageRequest) -> FaultFile:
    """Return the faults. Raises `UnknownPath` outside the test mode."""
    found: FaultCount | None = dependencies.parts_of(page.request).get(FaultCount)
    if found is None:
        raise UnknownPath(page.request.scope["path"])
    return found.faults
