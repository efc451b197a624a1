"""Templates of the pages, with the filters that make received words safe."""

from __future__ import annotations

import jinja2

from handset import reading
from handset.web import view
from tidings.pages import formatting, printable, templates


def environment() -> jinja2.Environment:
    """Return the templates of the pages."""
    made = templates.environment("handset.web")
    made.filters["formatted"] = formatting.formatted
    made.filters["label"] = printable.label
    made.filters["web_address"] = formatting.web_address
    made.filters["size"] = reading.bytes_of
    made.filters["geo"] = view.geo_uri
    made.filters["colour"] = view.colour_of
    return made
