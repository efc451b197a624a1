"""Templates of an old installation, as the vendor's or 360dialog's API lists them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from cli.moving.findings import OldPart, refused, to_set
from webapp.api.templates import importing
from webapp.api.templates.importing import Import
from webapp.http import bodies
from webapp.http.errors import InvalidRequest

# Keys of lists of templates: of the vendor's API, of 360dialog's, of ours.
KEYS = ("data", "waba_templates", "templates")


def describe(found: Sequence[object], file: str) -> Iterator[OldPart]:
    """Yield each template, as an import decides about it.

    file: name of the file that lists them
    """
    try:
        plan = importing.plan(bodies.check(Import, {"data": found}), "", [], 0)
    except InvalidRequest as error:
        yield refused("templates", error.problems[0].details)
        return
    for row in plan.keep:
        yield to_set(f"template {row.name} in {row.language}", f"tidings template import {file}")
    for entry in plan.refused:
        yield refused(f"template {entry.name}", entry.problem.details)
