"""Templates of the pages, with the filters that make received words safe."""

from __future__ import annotations

import jinja2

from handset import reading
from handset.printable import JOINERS, one_line
from handset.web import formatting, view
from tidings.pages import templates


def environment() -> jinja2.Environment:
    """Return the templates of the pages."""
    made = templates.environment("handset.web")
    made.filters["formatted"] = formatting.formatted
    made.filters["label"] = label
    made.filters["web_address"] = formatting.web_address
    made.filters["size"] = reading.bytes_of
    made.filters["geo"] = view.geo_uri
    made.filters["colour"] = view.colour_of
    return made


def label(text: str) -> str:
    """Return received words for a line of their own, such as the label of a button."""
    return one_line(text, JOINERS)
