"""Jinja environment of pages: every value is escaped, and a name that does not exist is an error."""

from __future__ import annotations

import jinja2


def environment(package: str) -> jinja2.Environment:
    """Return the environment of the templates in the folder `templates` of a package."""
    return jinja2.Environment(
        loader=jinja2.PackageLoader(package, "templates"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )
