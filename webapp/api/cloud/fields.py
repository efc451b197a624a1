"""Selection of an object's fields with `?fields=`."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from webapp.api.cloud import errors

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)
MAX_TEXT = 2_000  # characters of the parameter


def split(text: str) -> Sequence[str]:
    """Return the names at the top level of `fields`. Braces and parameters of a field are dropped.

    Raises `GraphError` for a text that is too long or has an open brace.
    """
    if len(text) > MAX_TEXT:
        raise errors.invalid(f"fields has {len(text)} characters, the limit is {MAX_TEXT}")
    names, depth, start = [], 0, 0
    for position, letter in enumerate(f"{text},"):
        depth += (letter in "{(") - (letter in "})")
        if letter == "," and depth <= 0:
            names.append(text[start:position].strip())
            start, depth = position + 1, 0
    if depth > 0:
        raise errors.invalid("fields: a brace or bracket is not closed")
    return [found[0] if (found := _NAME.match(name)) else name for name in names if name]


def select(
    available: Mapping[str, Any],
    fields: object,
    *,
    node_type: str,
    default: Sequence[str],
    optional: Sequence[str] = (),
) -> dict[str, Any]:
    """Return the requested fields of an object, in the order of the request, and always its `id`, last by default.

    Raises `GraphError` for an unknown field.

    fields: the parameter; `None` for the default fields
    optional: known fields that this object does not have, which are left out
    """
    names = split(fields) if isinstance(fields, str) and fields else default
    unknown = next((name for name in names if name not in available and name not in optional), None)
    if unknown is not None:
        raise errors.unknown_field(unknown, node_type)
    chosen = {name: available[name] for name in names if name in available}
    return chosen | {"id": available["id"]} if "id" in available else chosen
