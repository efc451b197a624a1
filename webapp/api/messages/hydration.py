"""Fill the placeholders of a template's text with values, or explain why they do not fit."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from tidings.wire.codes import (
    TEMPLATE_PARAMETER_COUNT,
    TEMPLATE_PARAMETER_FORMAT,
    TEMPLATE_PARAMETER_TOO_LONG,
    TEMPLATE_TEXT_TOO_LONG,
    TEMPLATE_WHITE_SPACE,
)
from webapp.api.messages.template_parameters import CurrencyParameter, DateTimeParameter, Parameter, TextParameter
from webapp.api.templates.placeholders import PLACEHOLDER, find_placeholders
from webapp.http.errors import InvalidRequest, Problem

# Not allowed in values: line breaks, tabs, and more than four spaces in a row.
_BAD_SPACE = re.compile(r"[\n\r\t\v\f]| {5}")


def fill_text(
    text: str, parameters: Sequence[Parameter], where: str, limit: int, part: str, *, is_address: bool = False
) -> str:
    """Return a text with its placeholders filled. Raises `InvalidRequest`.

    where: path of the parameters in the request
    limit: limit in characters, for each value and for the filled text
    part: name of the component, for error texts
    is_address: whether the text is a URL, whose only placeholder needs no name
    """
    names = find_placeholders(text)
    require_count(len(names), len(parameters), where, part)
    values: dict[str, str] = {}
    for n, parameter in enumerate(parameters):
        path = f"{where}[{n}]"
        words = _words(parameter, path)
        values[names[n] if is_address else _placeholder_of(parameter, names, n, values, path, part)] = words
        check_words(words, path, limit)
    return hydrate(text, values, where, limit, part)


def fill_in_order(text: str, values: Sequence[str], where: str, field: str, limit: int, part: str) -> str:
    """Return a text with numbered placeholders, filled with values in order. Raises `InvalidRequest`.

    field: field of each value, below its path
    """
    names = find_placeholders(text)
    require_count(len(names), len(values), where, part)
    if any(not name.isdigit() for name in names):
        raise InvalidRequest.because(
            TEMPLATE_PARAMETER_FORMAT, f"{where}: the variables of the template have names: send it as type template"
        )
    for n, value in enumerate(values):
        check_words(value, f"{where}[{n}].{field}", limit)
    return hydrate(text, dict(zip(names, values, strict=True)), where, limit, part)


def hydrate(text: str, values: Mapping[str, str], where: str, limit: int, part: str) -> str:
    """Return the text with a value in each placeholder. Raises `InvalidRequest` when the result is too long."""
    # Substituted in one pass, so that a value that looks like a placeholder stays as it is.
    hydrated = PLACEHOLDER.sub(lambda match: values[match[1]], text)
    if len(hydrated) > limit:
        raise InvalidRequest.because(
            TEMPLATE_TEXT_TOO_LONG, f"{where}: {part} has {len(hydrated)} characters when filled, the limit is {limit}"
        )
    return hydrated


def check_words(words: str, path: str, limit: int) -> None:
    """Raise `InvalidRequest` for a value that must not fill a placeholder."""
    if len(words) > limit:
        raise InvalidRequest.because(
            TEMPLATE_PARAMETER_TOO_LONG, f"{path}: has {len(words)} characters, the limit is {limit}"
        )
    if _BAD_SPACE.search(words):
        raise InvalidRequest.because(
            TEMPLATE_WHITE_SPACE, f"{path}: should have no line breaks, no tabs and no five blanks in a row"
        )


class CountMismatch(InvalidRequest):
    """A part of a template got another number of parameters than it takes."""

    def __init__(self, where: str, part: str, *, expected: int, given: int) -> None:
        """Create the error.

        where: path of the parameters in the request
        part: name of the part, for error texts
        """
        details = f"{where}: {part} takes {expected} parameters, not {given}"
        super().__init__([Problem(TEMPLATE_PARAMETER_COUNT, details)])
        self.part = part.removeprefix("the ").partition(",")[0]
        self.expected = expected
        self.given = given


def require_count(expected: int, given: int, where: str, part: str) -> None:
    """Raise `InvalidRequest` unless the number of parameters is the expected one."""
    if expected != given:
        raise CountMismatch(where, part, expected=expected, given=given)


def _placeholder_of(
    parameter: Parameter, names: Sequence[str], n: int, filled: Mapping[str, str], path: str, part: str
) -> str:
    """Return the name of the placeholder that the nth parameter fills."""
    given = getattr(parameter, "parameter_name", None)
    if names[n].isdigit():
        if given is not None:
            raise InvalidRequest.because(
                TEMPLATE_PARAMETER_FORMAT, f"{path}.parameter_name: the variables of {part} have numbers, not names"
            )
        return names[n]
    if given is None:
        raise InvalidRequest.because(
            TEMPLATE_PARAMETER_FORMAT,
            f"{path}.parameter_name: is missing, the variables of {part} are {', '.join(names)}",
        )
    if given not in names or given in filled:
        why = "names a variable twice" if given in filled else "names no variable"
        raise InvalidRequest.because(
            TEMPLATE_PARAMETER_FORMAT, f"{path}.parameter_name: {why}, the variables of {part} are {', '.join(names)}"
        )
    return str(given)


def _words(parameter: Parameter, where: str) -> str:
    if isinstance(parameter, TextParameter):
        return parameter.text
    if isinstance(parameter, CurrencyParameter):
        return parameter.currency.fallback_value
    if isinstance(parameter, DateTimeParameter):
        return parameter.date_time.fallback_value
    raise InvalidRequest.because(
        TEMPLATE_PARAMETER_FORMAT, f"{where}.type: a text has no variable for {parameter.type}"
    )
