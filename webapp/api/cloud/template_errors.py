"""Errors of wrong template definitions: code 100, with a subcode that names what is wrong."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from webapp.api.cloud import errors
from webapp.api.templates.components import MAX_BODY, MAX_FOOTER, MAX_HEADER
from webapp.http.bodies import type_of
from webapp.http.errors import InvalidRequest

TOO_LONG = 2388040  # subcode
_TOO_LONG_TITLE = "Character Limit Exceeded"
_MAX_NAME = 512
_LIMITS = {"HEADER": MAX_HEADER, "BODY": MAX_BODY, "FOOTER": MAX_FOOTER}  # characters of texts
# Subcodes and titles by type of the wrong component.
_FORMATS = {
    "HEADER": (2388047, "Message Header Format Is Incorrect"),
    "BODY": (2388072, "Message Body Format Is Incorrect"),
    "FOOTER": (2388073, "Message Footer Format Is Incorrect"),
}
_COMPONENT = re.compile(r"components\[(\d+)\](?:\.(\w+))?")


def of_definition(error: InvalidRequest, parameters: Mapping[str, Any]) -> errors.GraphError:
    """Return the error of a definition that our service refuses.

    parameters: of the call, unchecked
    """
    words = error.problems[0].details
    name = parameters.get("name")
    if words.startswith("name:") and isinstance(name, str) and len(name) > _MAX_NAME:
        return errors.for_user(TOO_LONG, _TOO_LONG_TITLE, f"name: has {len(name)} characters, the limit is {_MAX_NAME}")
    place = _COMPONENT.match(words)
    if place is None:
        return errors.invalid(words)
    part = parameters["components"][int(place[1])]
    kind = type_of(part).upper()
    if kind not in _FORMATS:
        return errors.invalid(words)
    text = part.get("text")
    if place[2] == "text" and isinstance(text, str) and len(text) > _LIMITS[kind]:
        return errors.for_user(TOO_LONG, _TOO_LONG_TITLE, words)
    return errors.for_user(*_FORMATS[kind], words)
