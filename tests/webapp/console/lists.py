"""Rows that the lists of the console show, and parts of the console."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TypeVar

from tests.webapp.conftest import Served

Part = TypeVar("Part")


def listed(text: str) -> Sequence[str]:
    """Return the ids of the messages or the `seq` of the callbacks of a list."""
    return re.findall(r'class="mono" href="/console/(?:messages|callbacks)/([^"]+)"', text)


def older(text: str) -> str:
    """Return the address of the next page; empty on the last."""
    found = re.search(r'href="([^"]+)" rel="next"', text)
    return found[1].replace("&amp;", "&") if found is not None else ""


def found_part(console: Served, kind: type[Part]) -> Part:
    """Return a part of the console by its class."""
    assert console.parts.console is not None
    return next(part for part in console.parts.console.parts if isinstance(part, kind))
