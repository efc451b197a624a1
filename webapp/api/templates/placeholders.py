"""Placeholders of a template's texts: `{{1}}` … `{{n}}`, or names such as `{{first_name}}`."""

from __future__ import annotations

import re
from collections.abc import Sequence

from tidings.wire.codes import PARAMETER_INVALID
from webapp.http.bodies import refusal

# For texts whose placeholders have been checked.
PLACEHOLDER = re.compile(r"\{\{([0-9]{1,2}|[a-z][a-z0-9_]{0,63})\}\}")
_ANY_PLACEHOLDER = re.compile(r"\{\{([^{}]*)\}\}")


def find_placeholders(text: str) -> Sequence[str]:
    """Return the placeholders of a text without repetitions: numbers ascending, names in the order of the text.

    Raises the errors of a validator.
    """
    found = list(dict.fromkeys(_ANY_PLACEHOLDER.findall(text)))
    for name in found:
        if not PLACEHOLDER.fullmatch(f"{{{{{name}}}}}") or name == "0":
            raise refusal(
                PARAMETER_INVALID,
                "has the variable {name}; variables are {first}, {second} … or names of lower-case letters, digits, _",
                name=f"{{{{{name[:50]}}}}}",
                first="{{1}}",
                second="{{2}}",
            )
    numbers = {int(name) for name in found if name.isdigit()}
    if numbers and len(numbers) < len(found):
        raise refusal(PARAMETER_INVALID, "should number its variables or name them, not both")
    if numbers != set(range(1, len(numbers) + 1)):
        raise refusal(PARAMETER_INVALID, "should number its variables from 1 without omissions")
    return sorted(found, key=int) if numbers else found


def has_valid_placeholders(text: str) -> str:
    """Validate a text with any number of placeholders."""
    find_placeholders(text)
    return text


def has_one_placeholder(text: str) -> str:
    """Validate a text with at most one placeholder."""
    if len(find_placeholders(text)) > 1:
        raise refusal(PARAMETER_INVALID, "has more than one variable")
    return text


def has_no_placeholder(text: str) -> str:
    """Validate a text without placeholders."""
    if find_placeholders(text):
        raise refusal(PARAMETER_INVALID, "should have no variables")
    return text


def ends_with_its_placeholder(url: str) -> str:
    """Validate a URL that may have one placeholder, at its end."""
    has_one_placeholder(url)
    if "{{" in url and not url.endswith("}}"):
        raise refusal(PARAMETER_INVALID, "should have its variable at the end")
    return url
